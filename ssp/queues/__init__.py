"""Queues: bounded hand-over of references, by lease. The coordinator holds a `Channel`; a `Queue` runs behind it."""

from ssp.queues.channel import Channel
from ssp.queues.leases import LeaseQueue, Ticket
from ssp.queues.queue import Queue

__all__ = ["Channel", "LeaseQueue", "Queue", "Ticket"]
