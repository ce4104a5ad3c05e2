"""Every figure of a run, from figures.json (name, roles, unit, meaning, kind), and the Grafana
dashboard of them all."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ssp.base.errors import InvariantError

GAUGE, COUNTER = "gauge", "counter"

ROWS = (
    ("game", "role `game`"),
    ("solver", "roles `proposer` and `solver`"),
    ("eval", "role `eval`"),
    ("live", "live, in Ray's metrics"),
)
"""A role of each section, and its title."""

WIDTH, HEIGHT, ABREAST = 8, 7, 3
UNITS = {"s": "s", "bytes": "bytes", "share": "percentunit"}
"""Ours → Grafana's; others are plain numbers."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_RUN: dict[str, Any] = {
    "name": "run",
    "type": "query",
    "label": "run",
    "datasource": _SOURCE,
    "refresh": 2,
}
_RUN |= {
    "query": {"query": "label_values(ray_ssp_step, run)", "refId": "run"},
    "multi": True,
    "includeAll": True,
}
_RUN |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
_BOARD: dict[str, Any] = {
    "title": "Search self-play",
    "uid": "ssp-selfplay",
    "tags": ["ssp"],
    "schemaVersion": 39,
}
_BOARD |= {
    "version": 1,
    "editable": True,
    "refresh": "10s",
    "time": {"from": "now-1h", "to": "now"},
}
_BOARD["templating"] = {
    "list": [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        _RUN,
    ]
}

_PART = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Figure:
    """One figure. `name` as in metrics.jsonl; a part in angle brackets stands for many, and is a
    tag of the series. A counter holds what a step adds to it; its series is the sum since the
    process began, `<series>_total`."""

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


_TABLE = json.loads(Path(__file__).with_name("figures.json").read_text(encoding="utf-8"))
FIGURES = tuple(Figure(name, tuple(roles.split()), *rest) for name, roles, *rest in _TABLE)
"""Every figure, in the order in which they are shown. Those of role `live` are no rows of
metrics.jsonl."""


@cache
def find(name: str, role: str) -> tuple[Figure, dict[str, str]]:
    """The figure called `name` of `role`, and the values of its parts. InvariantError for one that
    is not listed."""
    matches = [(figure, figure.match(name)) for figure in FIGURES if role in figure.roles]
    known = [(figure, parts) for figure, parts in matches if parts is not None]
    if not known:
        raise InvariantError(
            f"figure {name} of role {role} is not in ssp/telemetry/figures.json: add it there"
        )
    return min(known, key=lambda one: len(one[1]))  # a name of its own comes before one with parts


def sections() -> Iterator[tuple[str, list[Figure]]]:
    """Title and figures of each."""
    for role, title in ROWS:
        yield (
            title,
            [
                one
                for one in FIGURES
                if role in one.roles and (one.name != "step" or role == "live")
            ],
        )


def exported(figure: Figure) -> str:
    """The name of its series as Prometheus sees it."""
    return f"ray_{figure.series}" + ("_total" if figure.kind == COUNTER else "")


def grafana() -> str:
    """The dashboard's file: a panel a figure, a row a section, to choose the run from."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, figures in sections():
        place = {"x": 0, "y": top, "w": WIDTH * ABREAST, "h": 1}
        row = {
            "type": "row",
            "title": title.replace("`", ""),
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        panels.append(row)
        top += 1
        for number, figure in enumerate(figures):
            x, y = number % ABREAST * WIDTH, top + number // ABREAST * HEIGHT
            panels.append(_panel(figure) | {"gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT}})
        top += -(-len(figures) // ABREAST) * HEIGHT
    made = _BOARD | {
        "panels": [panel | {"id": number} for number, panel in enumerate(panels, start=1)]
    }
    return json.dumps(made, indent=1) + "\n"


def _panel(figure: Figure) -> dict[str, Any]:
    counts = figure.kind == COUNTER
    by, chosen = ", ".join(("run", "role", *figure.parts)), f'{exported(figure)}{{run=~"$run"}}'
    unit = UNITS.get(figure.unit, "short")
    if counts:
        unit = {"s": "percentunit", "bytes": "Bps"}.get(figure.unit, "cps")
    legend = " ".join(f"{{{{{key}}}}}" for key in ("run", "role", *figure.parts))
    expression = f"sum by ({by}) (rate({chosen}[5m]))" if counts else chosen
    return {
        "type": "timeseries",
        "title": figure.name + (" per second" if counts else ""),
        "description": figure.text + (f" ({figure.unit})" if figure.unit else ""),
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"spanNulls": True}}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [{"expr": expression, "legendFormat": legend, "refId": "A"}],
    }
