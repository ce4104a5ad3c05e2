"""What is printed of text from outside, and the one door through which it goes."""

from __future__ import annotations

import io
import unicodedata

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ssp.base.printable import printable, say
from ssp.telemetry.console import Console
from ssp.telemetry.terminal import Terminal, bar

HOSTILE = "\x1b]0;title\x07 \x1b[2J \x9b31m \u202edrow [/...pair.cc:553] [red]x[/] :smile: \ud800 \r"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\x00\x7f", "a\\rb\\x00\\x7f"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\u2066x\u2069 \u200f", "\\u2066x\\u2069 \\u200f"),
        ("one\u2028two", "one\\u2028two"),
        ("\udcff", "\\udcff"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Nukuʻalofa, São Paulo, 東京 👩‍🚀", "Nukuʻalofa, São Paulo, 東京 👩‍🚀"),
        ("[/red] \\x1b", "[/red] \\x1b"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_no_control_character_stays() -> None:
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    obeyed = [
        char
        for char in map(chr, range(0x110000))
        if unicodedata.category(char) in ("Cc", "Cs") or unicodedata.bidirectional(char) in turning
    ]
    assert [char for char in obeyed if printable(char) == char] == ["\t", "\n"]


def table(cell: str | Text) -> Table:
    made = Table(title=HOSTILE, caption=HOSTILE)
    made.add_column(HOSTILE)
    made.add_row(cell)
    return made


@pytest.mark.parametrize("what", [HOSTILE, Text(HOSTILE), Group(HOSTILE), table(HOSTILE), table(Text(HOSTILE))])
def test_what_is_drawn_is_neither_obeyed_nor_read_as_markup(what: object) -> None:
    file = io.StringIO()
    Terminal(file=file, width=400).print(what, style="bold red")
    shown = file.getvalue()
    assert printable(shown) == shown and "[/...pair.cc:553] [red]x[/] :smile:" in shown
    assert "\\x1b]0;title" in shown and "\\u202edrow" in shown


def test_colours_are_still_drawn_on_a_terminal() -> None:
    file = io.StringIO()
    Terminal(file=file, force_terminal=True, color_system="standard", width=400).print(Text(HOSTILE, style="red"))
    start, _, end = file.getvalue().partition(printable(HOSTILE.replace("\x07", "").replace("\r", "")))
    assert start == "\x1b[31m" and end.startswith("\x1b[0m")


@pytest.mark.parametrize("terminal", [False, True])
def test_the_display_of_a_run_shows_a_failure_s_own_words(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    console = Console(file, width=400)
    console.start(3, now=lambda: HOSTILE)
    console.event(HOSTILE)
    console.finish([(HOSTILE, 0.0, 1.0, ".1f")], {HOSTILE: HOSTILE})
    shown = file.getvalue()
    assert "[/...pair.cc:553]" in shown and not any(bad in shown for bad in ("\x1b]0", "\x1b[2J", "\x9b", "\u202e"))


def test_a_bar_shows_a_name_that_looks_like_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    with bar() as progress:
        progress.add_task(HOSTILE, total=2)
    shown = capsys.readouterr().err
    assert "[/...pair.cc:553]" in shown and "\x1b]0" not in shown and "\u202e" not in shown


def test_plain_lines_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    say(ValueError(HOSTILE))
    assert capsys.readouterr().out == printable(HOSTILE) + "\n"
