"""What an index needs, compared with the memory that there is before it is loaded."""

from collections.abc import Mapping

from ssp.base.devices import available_mb
from ssp.base.errors import hold

MB = 2**20


def check(loaded: Mapping[str, float]) -> None:
    """InputError when what a process loads (name → MB) is more than `available_mb`."""
    free, needed = available_mb(), sum(loaded.values())
    parts = ", ".join(f"{name} {mb:,.0f}" for name, mb in loaded.items())
    found = f"{needed:,.0f} MB ({parts}), and {free:,.0f} MB may be used"
    step = "take more retriever.shards, or a smaller index (--faiss IVF4096,SQ8)"
    hold(needed <= free, "what a process loads fits its memory", found, step)
