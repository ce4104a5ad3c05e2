"""Every cause for which an episode can be void: what it means, and what to do about it."""

import json
from pathlib import Path
from typing import NamedTuple


class Cause(NamedTuple):
    """What a cause means, and what a user does next where it keeps coming."""

    meaning: str
    next_step: str


_TABLE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
CAUSES = {word: Cause(*entry) for word, entry in _TABLE["causes"].items()}
"""By word."""
FAMILIES = {ending: Cause(*entry) for ending, entry in _TABLE["families"].items()}
"""By ending: faults of a crew, `<crew>_died` and so on, such as solver_died or
learner-proposer_deadline."""

UNKNOWN = Cause("a cause without an entry here, which is a bug", "report it")


def find(cause: str) -> Cause:
    """The entry of a cause; UNKNOWN where it has none."""
    if cause in CAUSES:
        return CAUSES[cause]
    for ending, entry in FAMILIES.items():
        if cause.endswith(ending):
            return entry
    return UNKNOWN
