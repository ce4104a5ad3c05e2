"""What is made from the list of figures: the Grafana dashboard (`ssp board --grafana FILE`), and the tables in
docs/metrics.md, which `python -m ssp.telemetry.published` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ssp.telemetry.figures import COUNTER, FIGURES, Figure

ROWS = (
    ("game", "role `game`"),
    ("solver", "roles `proposer` and `solver`"),
    ("eval", "role `eval`"),
    ("live", "live, in Ray's metrics; those of queues in queues.jsonl too"),
)
"""A role of each section, and its title."""

WIDTH, HEIGHT, ABREAST = 8, 7, 3
DOCUMENTED = ("<!-- figures: made by python -m ssp.telemetry.published -->", "<!-- end of figures -->")
UNITS = {"s": "s", "bytes": "bytes", "share": "percentunit"}
"""Ours → Grafana's; others are plain numbers."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_BOARD: dict[str, Any] = {
    "title": "Search self-play",
    "uid": "ssp-selfplay",
    "tags": ["ssp"],
    "schemaVersion": 39,
    "version": 1,
    "editable": True,
    "refresh": "10s",
    "time": {"from": "now-1h", "to": "now"},
    "templating": {
        "list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
            {
                "name": "run",
                "type": "query",
                "label": "run",
                "datasource": _SOURCE,
                "query": {"query": "label_values(ray_ssp_step, run)", "refId": "run"},
                "refresh": 2,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            },
        ]
    },
}


def sections() -> Iterator[tuple[str, list[Figure]]]:
    """Title and figures of each."""
    for role, title in ROWS:
        yield title, [one for one in FIGURES if role in one.roles and (one.name != "step" or role == "live")]


def tables() -> str:
    """The tables of docs/metrics.md, as Markdown."""
    lines: list[str] = []
    for title, figures in sections():
        lines += [f"### {title}", "", "| figure | unit | series | what it is |", "|---|---|---|---|"]
        for figure in figures:
            series = f"`{exported(figure)}`" + (f" by {', '.join(figure.parts)}" if figure.parts else "")
            lines.append(f"| `{figure.name}` | {figure.unit} | {series} | {figure.text} |")
        lines.append("")
    return "\n".join(lines)


def exported(figure: Figure) -> str:
    """The name of its series as Prometheus sees it."""
    return f"ray_{figure.series}" + ("_total" if figure.kind == COUNTER else "")


def grafana() -> str:
    """The dashboard's file: a panel a figure, a row a section, to choose the run from."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, figures in sections():
        place = {"x": 0, "y": top, "w": WIDTH * ABREAST, "h": 1}
        row = {"type": "row", "title": title.replace("`", ""), "collapsed": False, "gridPos": place, "panels": []}
        panels.append(row)
        top += 1
        for number, figure in enumerate(figures):
            x, y = number % ABREAST * WIDTH, top + number // ABREAST * HEIGHT
            panels.append(_panel(figure) | {"gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT}})
        top += -(-len(figures) // ABREAST) * HEIGHT
    made = _BOARD | {"panels": [panel | {"id": number} for number, panel in enumerate(panels, start=1)]}
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
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"expr": expression, "legendFormat": legend, "refId": "A"}],
    }


def documented(text: str) -> str:
    """A page with its tables made anew, between the two marks."""
    before, _, rest = text.partition(DOCUMENTED[0])
    return f"{before}{DOCUMENTED[0]}\n\n{tables()}\n{DOCUMENTED[1]}{rest.partition(DOCUMENTED[1])[2]}"


if __name__ == "__main__":
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    page.write_text(documented(page.read_text(encoding="utf-8")), encoding="utf-8")
