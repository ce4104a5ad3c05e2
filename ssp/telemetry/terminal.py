"""The one door to a terminal for what is drawn by rich: tables, colours, live pictures.

Owns that nothing is read as markup or emoji. Promises that text reaches the terminal as `printable` makes it, whoever wrote
it. Refuses to know what is shown. Plain lines go through `ssp.base.printable.say`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ssp.base.printable import printable, say
from ssp.base.tokenlog import Kind

PULSE = 60.0
"""Seconds between two lines of progress where there is no terminal."""

if TYPE_CHECKING:
    from rich.progress import Progress


class Terminal(Console):
    """rich's console, for text from outside. `settings` are those of rich's console; markup and emoji stay off."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"highlight": False, **settings, "markup": False, "emoji": False})

    def render_str(self, text: str, **settings: Any) -> Text:
        """A string as it is shown, in the width that it will have."""
        return super().render_str(printable(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is about to be written. The control codes are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def bar(**settings: Any) -> Progress:
    """A bar on stderr that is gone when it is done: what is worked on, how far it is, the time left."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Terminal(stderr=True), transient=True, **settings)


@dataclass
class Seen:
    """Texts that the policy wrote so far."""

    turns: int = 0

    def told(self, _: object, kind: Kind, text: str) -> None:
        """Hears of each text of an episode at once."""
        self.turns += kind is Kind.MODEL


@contextmanager
def followed(name: str, total: int, seen: Seen, every: float = PULSE) -> Iterator[Callable[[int], None]]:
    """How far `total` episodes are, on stderr: a bar on a terminal, elsewhere a line every so many seconds; at the end how
    long they took. Yields what is told how many are over, first of all those that were before."""
    started, ended, over = time.perf_counter(), threading.Event(), list[int]()

    def pulse() -> None:
        while not ended.wait(every):
            seconds, done = time.perf_counter() - started, over[-1] if over else 0
            rest = (total - done) / (done - over[0]) if over and done > over[0] else 0.0
            left = f", about {seconds * rest:.0f} s left" if rest else ""
            say(f"{name}: {done} of {total} episodes, {seen.turns} turns, {seconds:.0f} s{left}", file=sys.stderr)

    terminal = sys.stderr.isatty()
    if not terminal:
        threading.Thread(target=pulse, daemon=True).start()
    try:
        with bar(disable=not terminal) as progress:
            task = progress.add_task(name, total=total)

            def moved(done: int) -> None:
                over.append(done)
                progress.update(task, completed=done)

            yield moved
    finally:
        ended.set()
    say(f"{name}: {total} episodes, {time.perf_counter() - started:.1f} s", file=sys.stderr)
