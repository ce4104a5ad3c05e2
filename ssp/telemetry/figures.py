"""Every figure of a run, from figures.json (name, roles, unit, meaning, kind), and the Grafana
dashboard of them all, whose frame is grafana.json."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ssp.base.errors import InvariantError

GAUGE = "gauge"
COUNTER = "counter"

PLAYS = "role"
"""What stands in figures.json for each role that plays."""

ROWS = {
    "game": "role `game`",
    PLAYS: "each role that plays",
    "eval": "role `eval`",
    "live": "live, in Ray's metrics",
}
"""A role of each section → its title."""

FIRST = (
    "eval/accuracy",
    "game/win_rate",
    "game/valid_rate",
    "void/<cause>",
    "game/no_signal_rate",
    "logprob_mismatch/kl",
    "staleness/max",
    "clip_fraction",
    "entropy",
    "time/idle_share_<actors>",
)
"""The ten to look at first (docs/metrics.md)."""

HEIGHT = 7
ABREAST = (8, 8, 8)
FIVE = (5, 5, 5, 5, 4)
"""Widths of the panels of a line; the first ten stand in two lines."""
UNITS = {"s": "s", "bytes": "bytes", "share": "percentunit"}
"""Ours → Grafana's; others are plain numbers."""
RATES = {"s": "percentunit", "bytes": "Bps"}
"""The same of a counter's rate; others are counts a second."""

_BOARD = json.loads(Path(__file__).with_name("grafana.json").read_text(encoding="utf-8"))
"""The dashboard without its panels."""

_PART = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Figure:
    """One figure. `name` as in metrics.jsonl; a part in angle brackets stands for many, and is a
    tag of the series. A counter's figure is what a step adds; its series, `<series>_total`, is the
    sum since the process began."""

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
        match = re.fullmatch(_PART.sub(r"(?P<\1>.+)", self.name), name)
        return None if match is None else match.groupdict()


_TABLE = json.loads(Path(__file__).with_name("figures.json").read_text(encoding="utf-8"))
FIGURES = tuple(Figure(name, tuple(roles.split()), *rest) for name, roles, *rest in _TABLE)
"""Every figure, in the order in which they are shown. Those of role `live` are no rows of
metrics.jsonl."""


@cache
def find(name: str, role: str) -> tuple[Figure, dict[str, str]]:
    """The figure called `name` of `role`, and the values of its parts. InvariantError for one that
    is not listed."""
    known = []
    kind = role if role in ROWS else PLAYS
    for figure in FIGURES:
        parts = figure.match(name) if kind in figure.roles else None
        if parts is not None:
            known.append((figure, parts))
    if not known:
        rule = f"figure {name} of role {role} is not in ssp/telemetry/figures.json"
        raise InvariantError(f"{rule}: add it there")
    return min(known, key=lambda one: len(one[1]))  # a name of its own comes before one with parts


def sections() -> Iterator[tuple[str, list[Figure]]]:
    """Title and figures of each section."""
    for role, title in ROWS.items():
        figures = [figure for figure in FIGURES if role in figure.roles]
        if role != "live":
            figures = [figure for figure in figures if figure.name != "step"]
        yield title, figures


def exported(figure: Figure) -> str:
    """The name of its series as Prometheus sees it."""
    return f"ray_{figure.series}" + ("_total" if figure.kind == COUNTER else "")


def grafana() -> str:
    """The dashboard's file: the ten to look at first, then a panel a figure, a row a section, to
    choose the run from."""
    by_name = {figure.name: figure for figure in FIGURES}
    first = [by_name[name] for name in FIRST]
    rows: list[tuple[str, list[Figure], tuple[int, ...]]] = [("ten to look at first", first, FIVE)]
    rows += [(title, figures, ABREAST) for title, figures in sections()]
    panels: list[dict[str, Any]] = []
    top = 0
    for title, figures, widths in rows:
        place = {"x": 0, "y": top, "w": sum(widths), "h": 1}
        section = {"type": "row", "title": title.replace("`", ""), "collapsed": False}
        panels.append(section | {"gridPos": place, "panels": []})
        top += 1
        for number, figure in enumerate(figures):
            down, across = divmod(number, len(widths))
            place = {"x": sum(widths[:across]), "y": top + down * HEIGHT}
            place |= {"w": widths[across], "h": HEIGHT}
            panels.append(_panel(figure) | {"gridPos": place})
        top += -(-len(figures) // len(widths)) * HEIGHT
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return json.dumps(_BOARD | {"panels": panels}, indent=1) + "\n"


def _panel(figure: Figure) -> dict[str, Any]:
    """A graph of one figure: a counter's rate, or the value itself."""
    keys = ("run", "role", *figure.parts)
    title = figure.name
    unit = UNITS.get(figure.unit, "short")
    expression = f'{exported(figure)}{{run=~"$run"}}'
    if figure.kind == COUNTER:
        title += " per second"
        unit = RATES.get(figure.unit, "cps")
        expression = f"sum by ({', '.join(keys)}) (rate({expression}[5m]))"
    legend = " ".join(f"{{{{{key}}}}}" for key in keys)
    return {
        "type": "timeseries",
        "title": title,
        "description": figure.text + (f" ({figure.unit})" if figure.unit else ""),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"spanNulls": True}}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [{"expr": expression, "legendFormat": legend, "refId": "A"}],
    }
