"""A bounded queue of references as a Ray actor. Restarts empty; whoever put a block and got no acknowledgement puts it
again (`ssp.selfplay.channel`)."""

from __future__ import annotations

import ray

from actors.process import Alive
from ssp.selfplay.queue import BoundedQueue


@ray.remote
class QueueActor(BoundedQueue, Alive):
    """See `ssp.selfplay.queue.BoundedQueue`. References arrive inside blocks, so their payloads stay where they are."""
