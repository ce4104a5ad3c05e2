"""Where a run's processes go: a pure function of configuration and node descriptions, for a cluster
nobody has too."""

from ssp.capacity.placement.plan import GpuSlot, Plan, PlannedSeat, Unit, assign, beside, lay, units
from ssp.capacity.placement.tables import DoesNotFit, fits, make, short

__all__ = [
    "DoesNotFit",
    "Plan",
    "PlannedSeat",
    "GpuSlot",
    "Unit",
    "assign",
    "beside",
    "fits",
    "lay",
    "make",
    "short",
    "units",
]
