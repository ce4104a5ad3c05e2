"""The memory planner: bytes of every process, part by part, on its device and on its host, before anything starts.

Owns the sums. Promises to start nothing and to import neither Ray nor torch, and to say what it guessed. Refuses to place
processes (`ssp.capacity.placement`).
"""

from ssp.capacity.memory.needs import GB, MB, Need, Process, size
from ssp.capacity.memory.processes import learners, notes, processes
from ssp.capacity.memory.shapes import Model, find

__all__ = ["GB", "MB", "Model", "Need", "Process", "find", "learners", "notes", "processes", "size"]
