"""The ledger as a Ray actor, whose process stays small.

It is the one writer of the run's SQLite file and runs where the coordinator runs, whose disk has
it; its calls are idempotent."""

import ray

from actors.process import Alive
from ssp.record.ledger import HomeLedger


@ray.remote
class LedgerActor(HomeLedger, Alive):
    """See `ssp.record.ledger.HomeLedger`."""
