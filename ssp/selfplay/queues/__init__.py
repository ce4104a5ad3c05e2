"""Queues: bounded hand-over of references, by lease. The coordinator holds a `Channel`; a `Queue` runs behind it."""

from ssp.selfplay.queues.channel import Channel
from ssp.selfplay.queues.queue import LeaseQueue, Queue, Ticket

__all__ = ["Channel", "LeaseQueue", "Queue", "Ticket"]
