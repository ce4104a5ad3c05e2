"""The one door to a terminal for what is drawn by rich. Nothing is read as markup or emoji, and
text reaches the terminal as `printable` makes it. Plain lines go through
`ssp.base.printable.say`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ssp.base.printable import printable, say

PULSE = 60.0
"""Seconds between two lines of progress, at least, where there is no terminal."""

if TYPE_CHECKING:
    from rich.progress import Progress


class Terminal(Console):
    """rich's console, for text from outside. `settings` are those of rich's console; markup and
    emoji stay off."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"highlight": False, **settings, "markup": False, "emoji": False})

    def render_str(self, text: str, **settings: Any) -> Text:
        """A string as it is shown, in the width that it will have."""
        return super().render_str(printable(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What is about to be written. The control codes are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def bar(**settings: Any) -> Progress:
    """A bar on stderr that is gone when it is done: what is worked on, how far it is, the time
    left."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Terminal(stderr=True), transient=True, **settings)


NAME = 40
"""Cells of a row's name that keep their width."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table without lines. Columns of numbers lie to the right; they and the first column keep
    their width; other text folds."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    made = Table(box=None, padding=(0, 1), header_style="bold")
    for at, heading in enumerate(headings):
        texts = [row[at].plain for row in cells]
        numbers = all(text[:1] in "+-.0123456789" for text in texts)
        longest = max(map(cell_len, "\n".join([heading, *texts]).split("\n")))
        # no digit, and no name of a row, is cut off
        whole = numbers or (at == 0 and longest <= NAME)
        kept = longest if whole else min(8, longest)
        side: Any = "right" if numbers else "left"
        made.add_column(heading, overflow="fold", justify=side, no_wrap=whole, min_width=kept)
    for row in cells:
        made.add_row(*row)
    return made


@contextmanager
def followed(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far `total` episodes are, on stderr: a bar, or a line now and then. Yields a function
    that is told how many are over."""
    started = told = time.perf_counter()
    with bar(disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(name, total=total)

        def moved(done: int) -> None:
            nonlocal told
            progress.update(task, completed=done)
            if progress.disable and time.perf_counter() > told + PULSE:
                told = time.perf_counter()
                say(f"{name}: {done} of {total} episodes, {told - started:.0f} s", file=sys.stderr)

        yield moved
    say(f"{name}: {total} episodes, {time.perf_counter() - started:.1f} s", file=sys.stderr)
