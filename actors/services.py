"""The ledger and the queues as Ray actors, whose processes stay small.

The ledger is the one writer of the run's SQLite file and runs where the coordinator runs, whose disk has it; its calls are
idempotent. A queue restarts empty: whoever got no acknowledgement puts its block again."""

import ray

from actors.process import Alive
from ssp.record.ledger import HomeLedger
from ssp.selfplay.queues import Queue


@ray.remote
class LedgerActor(HomeLedger, Alive):
    """See `ssp.record.ledger.HomeLedger`."""


@ray.remote
class QueueActor(Queue, Alive):
    """See `ssp.selfplay.queues.Queue`. References arrive inside tickets, so their payloads stay where they are."""
