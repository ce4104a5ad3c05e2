"""What is made from the list of figures: the tables in docs/metrics.md and the Grafana dashboard.

`python -m ssp.telemetry.published` writes the tables where they lie in the repository; `ssp board --grafana FILE` writes the
dashboard. Owns their form. Promises that the same list gives the same files.
"""

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


def sections() -> Iterator[tuple[str, list[Figure]]]:
    """Title and figures of each."""
    for role, title in ROWS:
        yield (
            title,
            [figure for figure in FIGURES if role in figure.roles and (figure.name != "step" or role == "live")],
        )


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


def dashboard() -> dict[str, Any]:
    """The Grafana dashboard: a panel a figure, a row a section, to choose the run from."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, figures in sections():
        place = {"x": 0, "y": top, "w": WIDTH * ABREAST, "h": 1}
        panels.append(
            {"type": "row", "title": title.replace("`", ""), "collapsed": False, "gridPos": place, "panels": []}
        )
        top += 1
        for number, figure in enumerate(figures):
            x, y = number % ABREAST * WIDTH, top + number // ABREAST * HEIGHT
            panels.append(_panel(figure, {"x": x, "y": y, "w": WIDTH, "h": HEIGHT}))
        top += -(-len(figures) // ABREAST) * HEIGHT
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "title": "Search self-play",
        "uid": "ssp-selfplay",
        "tags": ["ssp"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _run()]},
        "panels": panels,
    }


def _panel(figure: Figure, place: dict[str, int]) -> dict[str, Any]:
    by = ", ".join(("role", *figure.parts))
    chosen = f'{exported(figure)}{{run=~"$run"}}'
    expression = f"sum by (run, {by}) (rate({chosen}[5m]))" if figure.kind == COUNTER else chosen
    if figure.name == "actor/busy_seconds":  # a share of them all is easier to read
        expression = f'{expression} / max by (run, role) (ray_ssp_actor_count{{run=~"$run"}})'
    unit = UNITS.get(figure.unit, "short")
    if figure.kind == COUNTER:
        unit = "percentunit" if figure.unit == "s" else "Bps" if figure.unit == "bytes" else "cps"
    legend = " ".join(f"{{{{{key}}}}}" for key in ("run", "role", *figure.parts))
    return {
        "type": "timeseries",
        "title": figure.name + (" per second" if figure.kind == COUNTER else ""),
        "description": figure.text + (f" ({figure.unit})" if figure.unit else ""),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"spanNulls": True}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"expr": expression, "legendFormat": legend, "refId": "A"}],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _run() -> dict[str, Any]:
    return {
        "name": "run",
        "type": "query",
        "label": "run",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(ray_ssp_step, run)", "refId": "run"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def grafana() -> str:
    """The dashboard as the file holds it."""
    return json.dumps(dashboard(), indent=1) + "\n"


def documented(text: str) -> str:
    """A page with its tables made anew, between the two marks."""
    before, _, rest = text.partition(DOCUMENTED[0])
    _, _, after = rest.partition(DOCUMENTED[1])
    return f"{before}{DOCUMENTED[0]}\n\n{tables()}\n{DOCUMENTED[1]}{after}"


def main() -> None:
    """Write the tables."""
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    page.write_text(documented(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
