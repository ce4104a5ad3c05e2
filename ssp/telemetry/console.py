"""What a person sees of a run: a live picture on a terminal, one plain line a step elsewhere, a
table at the end."""

import io
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ssp.base.printable import printable, say
from ssp.base.values import Values
from ssp.telemetry.outlet import PATIENCE, Outlet
from ssp.telemetry.terminal import Terminal

REWARD = "_reward"
"""What follows a role in the key of its reward."""

SHOWN = {
    "win_rate": ("win", "{:.2f}"),
    "valid_rate": ("valid", "{:.2f}"),
    "hops": ("hops", "{:.2f}"),
    "held-out": ("held-out", "{:.1%}"),
    "accuracy": ("accuracy", "{:.1%}"),
    "games_per_second": ("games/s", "{:.2f}"),
    "tokens_per_second": ("tok/s", "{:,.0f}"),
    "voids": ("voids", "{:.0f}"),
    "nll": ("nats a token", "{:.4f}"),
}
"""Key of `update` → (label, form), shown behind the rewards of the step, a role's each. Accuracy
(held-out, or not) is of the last evaluation, voids are all so far."""

EARLIER = 200
"""Lines that are remembered until there is a file for them."""

LONGEST = 20
"""Characters of the bar."""

Row = tuple[str, float | None, float | None, str]
"""(what, start, end, form): a form of Python's `format`, e.g. ".1%" or ".2f"; None is shown as a
dash."""


class Console:
    """One run's display. `start`, then `update` once a step and `event` at any time, then `finish`.

    A terminal that is stopped, a pipe that nobody reads and a full disk behind it hold up
    nobody."""

    def __init__(self, file: TextIO | None = None, width: int | None = None) -> None:
        self._file = file or sys.stdout
        self._rich = Terminal(file=self._file, width=width)
        self._live: Live | None = None
        self._out = Outlet("output", lambda text: None)
        self._log: Outlet | None = None
        self._path = Path()
        self._earlier = deque[str](maxlen=EARLIER)
        self._values: Values = {}
        self._total = 0
        self._step = 0
        self._first = 0
        self._now: Callable[[], str] = str
        self._began = time.monotonic()

    def keep(self, path: Path) -> None:
        """Write what is said also to `path`, with the time, and what was said before."""
        self._path = path
        self._log = Outlet(path.name, self.event)
        for text in [*self._earlier]:
            self._note(text)
        self._earlier.clear()

    def _note(self, text: str) -> None:
        """Keep one or more lines."""
        if self._log is None:
            self._earlier.append(text)
            return

        def written() -> None:
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                now = time.strftime("%Y-%m-%d %H:%M:%S")
                file.writelines(f"{now}  {printable(line)}\n" for line in text.splitlines())

        self._log.do(written, PATIENCE)

    def start(self, total: int, done: int = 0, now: Callable[[], str] = str) -> None:
        """Play begins, or begins again: `total` steps in all, `done` of them before. `now` gives
        the work under way."""
        self._total = total
        self._step = done
        self._first = done
        self._began = time.monotonic()
        self._now = now
        if self._rich.is_terminal and self._live is None:
            self._live = Live(
                get_renderable=self._picture, console=self._rich, refresh_per_second=2
            )
            self._show(partial(self._live.start, refresh=True))

    def update(self, values: Mapping[str, float]) -> None:
        """New figures by the keys of `SHOWN`, `<role>_reward`, and `step`; the others keep theirs.
        Unknown keys are ignored."""
        self._step = int(values.get("step", self._step))
        for name, value in values.items():
            if name in SHOWN or name.endswith(REWARD):
                self._values[name] = value
        parts = [f"step {self._step}/{self._total}", *self._figures(), f"ETA {self._eta()}"]
        line = "  ".join(parts)
        if self._rich.is_terminal:  # the picture shows it
            self._note(line)
        else:
            self.say(line)

    def event(self, text: str) -> None:
        """Something happened that a person should know, e.g. `proposer-0 died, restarting`."""
        if self._rich.is_terminal:
            self._note(f"! {text}")
            self._show(partial(self._rich.print, Text(f"! {text}", style="yellow")))
        else:
            self.say(f"! {text}")

    def say(self, text: str) -> None:
        """Plain lines. What is copied from here, as a path is, is not wrapped."""
        self._note(text)
        self._show(partial(say, text, file=self._file))

    def finish(
        self, rows: Sequence[Row], paths: Mapping[str, object] | None = None, note: str = ""
    ) -> None:
        """End the live picture. Print what changed from start to end, the `note` on it, and where
        things are."""
        self.stop()
        if rows:
            table = Table(title="what was learned", title_justify="left")
            table.add_column("what")
            for name in ("start", "end", "change"):
                table.add_column(name, justify="right")
            for what, start, end, form in rows:
                change = None if start is None or end is None else end - start
                cells = (_shown(start, form), _shown(end, form), _shown(change, f"+{form}"))
                table.add_row(what, *cells)
            self._show(partial(self._rich.print, table))
            drawn = io.StringIO()
            Terminal(file=drawn, width=100).print(table)
            self._note(drawn.getvalue())
            for line in note.splitlines():
                self.say(line)
        for name, path in (paths or {}).items():
            self.say(f"{name}: {path}")

    def stop(self) -> None:
        """End the live picture and give the terminal back; needed on every way out of a run."""
        self._now = str
        if self._live is not None:
            self._show(self._live.stop)
            self._live = None

    def _show(self, how: Callable[[], object]) -> None:
        """Have something shown. What cannot be shown is lost; what comes later is tried again."""

        def tried() -> None:
            with suppress(OSError):
                how()

        self._out.do(tried, PATIENCE)

    def _figures(self) -> list[str]:
        figures = []
        for name, value in self._values.items():
            if name.endswith(REWARD):
                figures.append(f"{name.removesuffix(REWARD)} {value:.2f}")
        for name, (label, form) in SHOWN.items():
            if name in self._values:
                figures.append(f"{label} {form.format(self._values[name])}")
        return figures

    def _picture(self) -> Group:
        """What is shown live: progress, figures, and the work under way."""
        done = self._step / max(1, self._total)
        bar = f"{'█' * round(LONGEST * done):░<{LONGEST}}"
        progress = f"step {self._step}/{self._total}  {bar} {done:4.0%}  ETA {self._eta()}"
        lines = [Text(progress)]
        if self._values:
            lines.append(Text("  ".join(self._figures())))
        now = self._now()
        if now:
            lines.append(Text(f"now: {now}", overflow="ellipsis", no_wrap=True))
        return Group(*lines)

    def _eta(self) -> str:
        """The time left as h:mm:ss or m:ss; a dash before the first step."""
        played = self._step - self._first
        if played <= 0:
            return "-"
        a_step = (time.monotonic() - self._began) / played
        left = a_step * max(0, self._total - self._step)
        minutes, seconds = divmod(round(left), 60)
        if minutes < 60:
            return f"{minutes}:{seconds:02}"
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
