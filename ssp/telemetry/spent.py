"""What a run has cost, in one line at its end."""

import os

from ssp.base.errors import SspError
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder


def spent(run: RunFolder, gpus: int, nodes: int) -> str:
    """GPU-hours, or CPU-hours where a run reserves no GPU, and tokens, by its figures, those of
    earlier processes too. Each of `nodes` is taken to have as many cores as this one. The run is
    over and saved: what goes wrong here is told, and nothing else."""
    try:
        rows = RunReader(run).metrics()
    except (SspError, OSError) as error:
        return f"spent: not known: {error}"
    seconds = played = trained = 0.0
    for row in rows:
        seconds += row.get("time/step", 0.0) + row.get("time/eval", 0.0)
        played += row.get("game/tokens", 0.0)
        trained += row.get("tokens", 0.0)
    number, kind = gpus, "GPU"
    if not gpus:
        number, kind = nodes * len(os.sched_getaffinity(0)), "CPU"
    hours = number * seconds / 3600
    took = f"{number} {kind}s for {seconds / 60:,.3g} minutes"
    tokens = f"{played:,.0f} tokens played, {trained:,.0f} trained"
    return f"spent: {hours:,.3g} {kind}-hours ({took}); {tokens}"
