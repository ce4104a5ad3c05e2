"""The ledger as a Ray actor: the one writer of the run's SQLite file. Its calls are idempotent, so Ray may retry them
after a restart (`max_task_retries=-1`). It runs where the coordinator runs, whose disk has the file."""

from __future__ import annotations

import ray

from actors.process import Alive
from ssp.record.ledger import HomeLedger


@ray.remote
class LedgerActor(HomeLedger, Alive):
    """See `ssp.record.ledger.HomeLedger`."""
