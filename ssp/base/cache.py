"""Where made things are kept, and how they get there whole."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def root() -> Path:
    """`$SSP_CACHE`, else `ssp` in `$XDG_CACHE_HOME`, else `~/.cache/ssp`. Not created here."""
    if os.environ.get("SSP_CACHE"):
        return Path(os.environ["SSP_CACHE"]).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "ssp"


def put(entry: Path, make: Callable[[Path], None], sound: Callable[[Path], bool]) -> Path:
    """Fill the folder `entry` with `make(folder)`, which writes aside; then it is renamed. An unsound
    `entry` is replaced. When another process was first with a sound one, that one stays and ours is
    thrown away."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
    try:
        made, old = aside / "made", aside / "old"
        made.mkdir()
        make(made)
        if entry.exists() and not sound(entry):
            entry.rename(old)
        try:
            made.rename(entry)
        except OSError:
            if not sound(entry):
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return entry
