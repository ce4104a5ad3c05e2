"""Where a run's processes go: units, nodes, and the plan that brings them together.

Owns the plan as a value. Promises that it is a pure function of configuration and node descriptions, so that a cluster
nobody has can be planned. Refuses to know Ray (`actors.placement` carries a plan out).
"""

from ssp.capacity.placement.nodes import Node, parse
from ssp.capacity.placement.plan import Plan, Slot, assign, fits, lay, make, short
from ssp.capacity.placement.refusals import DoesNotFit
from ssp.capacity.placement.units import Seat, Unit, units

__all__ = [
    "DoesNotFit",
    "Node",
    "Plan",
    "Seat",
    "Slot",
    "Unit",
    "assign",
    "fits",
    "lay",
    "make",
    "parse",
    "short",
    "units",
]
