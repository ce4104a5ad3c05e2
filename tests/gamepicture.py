"""The picture of games: `python tests/gamepicture.py [FILE.py:GAME OUT.svg]` draws the declarations that ship to docs/games.svg, or yours.

A row a game: what it is about, then its stages in their order, each with who acts; below a stage, what pays for its episodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ssp.base.gamespec import Check, Choose, GameSpec, Grading, Keep, Play, Rate, Stage  # noqa: E402
from ssp.base.played import ANSWERS, ASKS  # noqa: E402
from ssp.config import games  # noqa: E402

PICTURE = ROOT / "docs" / "games.svg"
WIDE, HIGH = 108, 46
"""Of a box, in pixels."""
STEP, ROW = 124, 112
"""From one box to the next, and from one game to the next."""
LEFT, TOP = 12, 34
INK = {ASKS: "#dbe9f9", ANSWERS: "#dcf3dc", "": "#ece4f6", "checks": "#fdebd0", "grades": "#f9dcdc", "other": "#eeeeee"}
"""Colours of stages: who asks, who answers, another play, a check, a grading, what only chooses."""


def words(function: Callable[..., object]) -> str:
    """A function's name, as words."""
    return function.__name__.replace("_", " ")


def who(stage: Stage) -> str:
    """Who acts at a stage."""
    match stage:
        case Play():
            times = "" if stage.times == 1 else " × n"
            unseen = ", no search" if stage.closed else ""
            return " or ".join(stage.roles) + times + unseen
        case Check():
            return words(stage.by) if stage.by else "referee"
        case Grading():
            return f"{words(stage.by) if stage.by else 'judge'}, of {stage.of}"
        case Keep():
            return f"best {words(stage.best)}"
        case Rate():
            return words(stage.by)
        case Choose():
            return "fill the batch"


def colour(spec: GameSpec, stage: Stage) -> str:
    """Of a stage's box."""
    match stage:
        case Play():
            return INK[spec.side(stage.name)]
        case Check():
            return INK["checks"]
        case Grading():
            return INK["grades"]
    return INK["other"]


def text(x: float, y: float, said: str, size: int = 10, more: str = "") -> str:
    """A line of text around `x`."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle"{more}>{escape(said)}</text>'


def box(x: float, y: float, name: str, lines: Sequence[str], fill: str) -> list[str]:
    """A stage: its name, and who acts."""
    drawn = [f'<rect x="{x:g}" y="{y:g}" width="{WIDE}" height="{HIGH}" rx="5" fill="{fill}" stroke="#777"/>']
    middle = x + WIDE / 2
    drawn.append(text(middle, y + 14, name, 11, ' font-weight="bold"'))
    return [*drawn, *(text(middle, y + 27 + 12 * number, line) for number, line in enumerate(lines))]


def row(name: str, spec: GameSpec, y: float) -> list[str]:
    """One game."""
    turns = "".join(f"; {phase.steps} steps {' and '.join(phase.learns)}" for phase in spec.phases)
    drawn = [f'<text x="{LEFT}" y="{y - 9:g}" font-size="13" font-weight="bold">{escape(name + turns)}</text>']
    drawn += box(LEFT, y, spec.rows, ["rows of the data"] if spec.rows != "nothing" else [], "white")
    for number, stage in enumerate(spec.stages, 1):
        x = LEFT + number * STEP
        drawn.append(f'<path d="M{x - STEP + WIDE} {y + HIGH / 2:g}H{x - 3}" stroke="#555" marker-end="url(#tip)"/>')
        drawn += box(x, y, stage.name, wrap(who(stage), 19)[:2], colour(spec, stage))
        paid = spec.payment(stage.name) if isinstance(stage, Play) else None
        if paid is not None:
            lines = wrap(f"paid {words(paid.by)}", 21)
            drawn += [text(x + WIDE / 2, y + HIGH + 13 + 12 * at, line) for at, line in enumerate(lines)]
    return drawn


def picture(drawn: dict[str, GameSpec]) -> str:
    """The SVG of these games."""
    wide = LEFT * 2 + STEP * (1 + max(len(spec.stages) for spec in drawn.values())) - (STEP - WIDE)
    high = TOP + ROW * len(drawn)
    tip = '<marker id="tip" markerWidth="6" markerHeight="6" refX="5" refY="3" orient="auto"><path d="M0 0L6 3L0 6z" fill="#555"/></marker>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif">',
        f'<defs>{tip}</defs><rect width="{wide}" height="{high}" fill="white"/>',
    ]
    for number, (name, spec) in enumerate(drawn.items()):
        parts += row(name, spec, TOP + ROW * number)
    return "\n".join([*parts, "</svg>\n"])


def shipped() -> str:
    """The picture of the games that ship."""
    return picture({name: games.find(name) for name in games.SHIPPED})


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            PICTURE.write_text(shipped())
        case [own, out]:
            Path(out).write_text(picture({own: games.find(own)}))
        case _:
            sys.exit(__doc__)
