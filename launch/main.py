"""The console script `ssp <command> [arguments]`, and what every command does with a failure.

Owns the list of commands and the exit codes: 0 done, 2 bad input, 1 a failure of ours, 130 interrupted. Promises that bad
input is one paragraph on stderr, and that only the command that was asked for is imported.
Refuses to know what a command does; an exception that nobody typed is a bug: exit code 1, its traceback in a file.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import select
import shutil
import sqlite3
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Sequence

from ssp import __version__
from ssp.base.errors import InputError, InvariantError, SspError
from ssp.base.printable import say

COMMANDS = {
    "train": "play the duel and train both policies",
    "cluster": "train over several nodes",
    "warmup": "teach a policy from traces before it plays",
    "eval": "score a policy on an evaluation set",
    "ask": "ask a policy questions and show its searches",
    "inspect": "show an episode of a run, with its mask",
    "replay": "play an episode again from its record, and compare",
    "compare": "show runs beside each other, and the best checkpoint",
    "bank": "search, show and export the questions of a run",
    "board": "show a run in the browser, or as one HTML file",
    "index": "build a search index from a corpus",
    "serve": "answer searches over HTTP, or serve a judge",
    "migrate": "turn a launch script of Search-R1, SSP, EMA-PG, ReSearch or SSRL into a config",
    "data": "convert and merge question files",
    "download": "fetch published data sets, indexes and models",
    "plan": "simulate the schedule of a configuration on any number of GPUs",
    "doctor": "check this machine, or a run's ledger",
}
"""Command → what it is for. `launch.<command>` has `main(argv) -> int`."""

INTERRUPTED = 130
LONGEST = 500
"""Characters of an unexpected exception that are shown; its file has all."""

_OF_THE_PATH = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of the operating system that only another path, or other rights to it, can mend."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. `argv` without the program's name (None: the process's own)."""
    return run(_dispatch, sys.argv[1:] if argv is None else argv)


def run(command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Call `command(argv)` and turn a failure into its message and exit code. Text that a stream cannot hold is escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _typed(command, argv)
    except Exception as error:  # noqa: BLE001 (nobody expected it: it is kept whole, and stays a failure of ours)
        return _unexpected(error)


def _typed(command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Call `command(argv)`; failures that are expected become their paragraph, the others pass."""
    try:
        code = command(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _reader_left():
            raise
        return 1
    except InputError as error:
        _say(str(error))
        return error.exit_code
    except SspError as error:
        if isinstance(error, InvariantError):
            raise
        _say(f"{type(error).__name__}: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except (OSError, sqlite3.Error) as error:
        if _disk_full(error):
            _say(str(InputError("what is written needs space", error, "free some; a run goes on with resume=auto")))
        elif isinstance(error, OSError) and error.errno in _OF_THE_PATH and error.filename:
            _say(str(InputError("a path that is typed can be used", error, "give another path, or the rights to it")))
        else:
            raise
        return InputError.exit_code


def _unexpected(error: Exception) -> int:
    """Say in one line what happened and where its traceback is; on stderr whole where no file can be made."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="ssp-", suffix=".txt", delete=False) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError:
        say(text, file=sys.stderr)
    else:
        said = f"{type(error).__name__}: {error}"[:LONGEST].replace("\n", " ")
        say(f"ssp: a bug in ssp, or in what it runs on: {said}. Traceback: {file.name}", file=sys.stderr)
    return 1


def _reader_left() -> bool:
    """True when nobody reads our output any more (`ssp ... | head`); what is left of it then goes nowhere."""
    watch = select.poll()
    watch.register(1, 0)
    left = any(event & select.POLLERR for _, event in watch.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return left


def _disk_full(error: BaseException | None) -> bool:
    """True when the error, or one that it came of, says that no space is left."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, sqlite3.Error) and "disk is full" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _dispatch(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        say(_help())
        return 0
    if argv[0] in ("-V", "--version"):
        say(f"ssp {__version__}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean ssp {near[0]}" if near else "see ssp --help"
        raise InputError(f"a command is one of {', '.join(COMMANDS)}", name, hint)
    code: int = importlib.import_module(f"launch.{name}").main(rest)
    return code


def _help() -> str:
    rows = "\n".join(f"  {name:8} {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: ssp <command> [options]\n\n"
        f"{rows}\n\n"
        "ssp <command> --help lists a command's options; train, warmup, eval, ask and doctor also take --config\n"
        "NAME|FILE and key=value settings. ssp train --dry-run shows the resolved configuration and what would start,\n"
        "and starts nothing. Exit codes: 0 done, 1 a failure of ours, 2 bad input, 130 interrupted."
    )


def _say(message: str) -> None:
    """One paragraph on stderr, wrapped for a terminal; one line elsewhere, so that scripts can search it."""
    text = f"ssp: {message}"
    if sys.stderr.isatty():
        width = min(shutil.get_terminal_size().columns, 100)
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    say(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
