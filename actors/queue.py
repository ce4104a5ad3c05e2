"""A bounded queue of references as a Ray actor. Restarts empty; whoever put a block and got no acknowledgement puts it
again (`ssp.selfplay.queues.channel`)."""

from __future__ import annotations

import ray

from actors.process import Alive
from ssp.selfplay.queues import Queue


@ray.remote
class QueueActor(Queue, Alive):
    """See `ssp.selfplay.queues.Queue`. References arrive inside tickets, so their payloads stay where they are."""
