"""Where a run's processes go: units, nodes, and the plan that brings them together.

A plan is a pure function of configuration and node descriptions, so that a cluster nobody has can be planned.
"""

from ssp.capacity.placement.plan import Plan, Slot, assign, beside, lay
from ssp.capacity.placement.refusals import DoesNotFit, fits, make, short
from ssp.capacity.placement.units import Seat, Unit, units

__all__ = ["DoesNotFit", "Plan", "Seat", "Slot", "Unit", "assign", "beside", "fits", "lay", "make", "short", "units"]
