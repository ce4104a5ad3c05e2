"""Writes the golden files: `python tests/protocols/make_golden.py`, after a change of a protocol's words that is meant.

Raise the `version` of the protocols that changed, too: checkpoints are told apart by it.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Replace every file of golden/."""
    here = Path(__file__).resolve().parent
    sys.path[:0] = [str(here.parent), str(here.parents[1])]
    from golden_texts import FOLDER, golden

    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, text in golden().items():
        (FOLDER / name).write_bytes(text.encode())


if __name__ == "__main__":
    main()
