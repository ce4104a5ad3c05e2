"""The tables of docs/metrics.md and the dashboard docs/grafana.json, made from the list of figures.
`python tests/figures.py` writes them anew."""

from __future__ import annotations

from pathlib import Path

from ssp.telemetry.figures import COUNTER, grafana, sections

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
DASHBOARD = PAGE.with_name("grafana.json")
MARKS = ("<!-- figures: made by python tests/figures.py -->", "<!-- end of figures -->")


def tables() -> str:
    lines: list[str] = []
    for title, figures in sections():
        lines += [f"### {title}", "", "|figure|unit|what it is|", "|-|-|-|"]
        for figure in figures:
            mark = " +" if figure.kind == COUNTER else ""
            unit = figure.unit if figure.unit != "share" else ""
            lines.append(f"|`{figure.name}`{mark}|{unit}|{figure.text}|")
        lines.append("")
    return "\n".join(lines)


def documented(text: str) -> str:
    """A page with its tables made anew, between the two marks."""
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{tables()}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


if __name__ == "__main__":
    DASHBOARD.write_text(grafana(), encoding="utf-8")
    PAGE.write_text(documented(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
