"""The memory planner: bytes of every process, part by part, on its device and on its host; imports
neither Ray nor torch."""

from ssp.capacity.memory.needs import GB, MB, Need, Process, size
from ssp.capacity.memory.processes import learners, notes, processes
from ssp.capacity.memory.shapes import Model, find

__all__ = ["GB", "MB", "Model", "Need", "Process", "find", "learners", "notes", "processes", "size"]
