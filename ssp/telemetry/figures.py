"""Every figure of a run, from figures.json: name, roles, unit, meaning and, where it is no gauge, kind, a line each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ssp.base.errors import InvariantError

GAUGE, COUNTER = "gauge", "counter"

_PART = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Figure:
    """One figure. `name` as in metrics.jsonl; a part in angle brackets stands for many, and is a tag of the series. A
    counter holds what a step adds to it; its series is the sum since the process began, `<series>_total`."""

    name: str
    roles: tuple[str, ...]
    unit: str
    text: str
    kind: str = GAUGE

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts in angle brackets."""
        return tuple(_PART.findall(self.name))

    @property
    def series(self) -> str:
        """The name that the figure has in Ray's metrics (which export it as `ray_<series>`)."""
        return "ssp_" + re.sub(r"[^a-z0-9]+", "_", _PART.sub("", self.name)).strip("_")

    @property
    def tags(self) -> tuple[str, ...]:
        """Keys of the series' tags."""
        return ("role", "run", *self.parts)

    def match(self, name: str) -> dict[str, str] | None:
        """The values of `parts` when `name` is this figure's, else None."""
        found = re.fullmatch(_PART.sub(r"(?P<\1>.+)", self.name), name)
        return None if found is None else found.groupdict()


FIGURES = tuple(
    Figure(name, tuple(roles.split()), *rest)
    for name, roles, *rest in json.loads(Path(__file__).with_name("figures.json").read_text(encoding="utf-8"))
)
"""Every figure, in the order in which they are shown. Those of role `live` are no rows of metrics.jsonl."""


@cache
def find(name: str, role: str) -> tuple[Figure, dict[str, str]]:
    """The figure called `name` of `role`, and the values of its parts. InvariantError for one that is not listed."""
    matches = [(figure, figure.match(name)) for figure in FIGURES if role in figure.roles]
    known = [(figure, parts) for figure, parts in matches if parts is not None]
    if not known:
        raise InvariantError(f"figure {name} of role {role} is not in ssp/telemetry/figures.json: add it there")
    return min(known, key=lambda one: len(one[1]))  # a name of its own comes before one with parts
