"""A bounded queue of references as a Ray actor. Restarts empty; whoever put a block and got no acknowledgement puts it
again (`ssp.queues.channel`)."""

from __future__ import annotations

import ray

from actors.process import Alive
from ssp.queues import Queue


@ray.remote
class QueueActor(Queue, Alive):
    """See `ssp.queues.Queue`. References arrive inside tickets, so their payloads stay where they are."""
