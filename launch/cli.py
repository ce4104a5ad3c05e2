"""The command line that commands share: `--config NAME|FILE`, `key=value` settings, flags; and what
becomes of a failure."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import io
import math
import os
import platform
import re
import signal
import socket
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ssp.base.errors import InputError, InvariantError, SspError, holding
from ssp.base.printable import say

if TYPE_CHECKING:
    from ssp.config.schema import Config

DEFAULT_CONFIG = "quickstart"
BACKLOG = 512
INTERRUPTED = 130

_FULL = {errno.ENOSPC, errno.EDQUOT}
_BROKEN = {errno.EIO, errno.ESTALE}
_OF_THE_PATH = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of the operating system: a disk is full; a disk, or a server of files, fails; only another
path, or other rights to it, can mend it."""


def run(command: Callable[[Sequence[str]], int], argv: Sequence[str] | None = None) -> int:
    """Call `command(argv)` (None: the process's own); a failure is one paragraph on stderr and an
    exit code. 0 done, 2 bad input, 1 a failure of ours, 130 interrupted. An exception that nobody
    typed is a bug: 1, and its traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):  # what is no text is refused where it is read
        sys.stdin.reconfigure(errors="surrogateescape")
    try:
        code = command(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `ssp ... | head`: what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        say("ssp: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 (nobody expected it: a failure of ours)
        expected = isinstance(error, SspError) and not isinstance(error, InvariantError)
        known = error if expected else explained(error)
        if not isinstance(known, SspError):
            stack = "".join(traceback.format_exception(error))
            say(f"ssp: a bug in ssp, or in what it runs on\n{stack}", sys.stderr)
            return 1
        kind = "" if isinstance(known, InputError) else f"{type(known).__name__}: "
        say(f"ssp: {kind}{known}", file=sys.stderr)
        return known.exit_code


def explained(error: Exception) -> InputError | None:
    """What a user can do about an error of the surroundings: a full disk, a path without rights, a
    ledger that somebody holds, a Python without the packages. None for any other."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        ours = package in ("", "ssp", "actors", "launch")
        if not ours and importlib.util.find_spec(package) is None:
            python = f"{sys.executable} (Python {platform.python_version()})"
            return InputError(
                "ssp runs in the environment that its packages are installed in",
                f"no module {error.name} in {python}",
                "activate that environment (source .venv/bin/activate), or make it: bash"
                " launch/setup.sh",
            )
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    texts = "\n".join(map(str, chain))
    numbers = {getattr(link, "errno", 0) for link in chain}
    held = [link for link in chain if isinstance(link, sqlite3.OperationalError)]
    if any("is locked" in str(link) for link in held):
        return InputError(
            "nobody else writes into a run's ledger",
            f"{error}, for longer than it is waited for",
            "end the program that holds it (lsof ledger.db); a run goes on with resume=auto",
        )
    if numbers & _FULL or re.search(r"disk is full|os error (28|122)\b", texts):
        step = "free some; a run goes on with resume=auto"
        return InputError("what is written needs space", error, step)
    if numbers & _BROKEN or "disk I/O error" in texts:
        step = "see what the system says of it (dmesg); a run goes on with resume=auto"
        return InputError("what a run lies on can be read and written", error, step)
    if isinstance(error, OSError) and error.errno in _OF_THE_PATH and error.filename:
        step = "give another path, or the rights to it"
        return InputError("a path that is typed can be used", error, step)
    return None


@contextmanager
def writable(rule: str, what: object) -> Iterator[None]:
    """Raise InputError with `rule` where the path that was typed, `what`, cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise InputError(rule, f"{what}: {error}", "give another path") from error


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are `InputError`; flags are never abbreviated, so a new one breaks
    nobody's script."""

    def __init__(self, command: str, summary: str) -> None:
        super().__init__(prog=f"ssp {command}", description=summary, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise, where argparse would print the usage and leave."""
        from ssp.base.episode import ROLES
        from ssp.config.gone import advice
        from ssp.config.keys import option

        keys = [word.partition("=")[0] for word in message.split()]
        hint = f"see {self.prog} --help"
        if any(action.dest == "overrides" for action in self._actions):
            meant = "".join(option(key, ROLES) for key in keys if key.startswith("--"))
            if meant:
                hint = f"type a setting without dashes, {meant}; {hint}"
        hint = advice(keys) or hint
        # what was typed for an option that nobody knows may be a secret
        if message.startswith("unrecognized"):
            message = re.sub(r"( --?[^\s=]+)[= ](?!-)\S+", r"\1", message)
        raise InputError(f"{self.prog} takes only the arguments that it knows", message, hint)


@dataclass(frozen=True)
class Parsed:
    """What was typed: the config's name or file, `key=value` settings in order, and the command's
    own flags. `flags.config` is None when no config was typed, and `config` the default's name."""

    config: str
    overrides: list[str]
    flags: argparse.Namespace

    def load(self) -> Config:
        """The checked configuration. InputError when it is wrong. What SSP's environment variables
        set is said on stderr."""
        return load(self.config, self.overrides)


def parse(
    argv: Sequence[str], command: str, summary: str, flags: Callable[[Parser], None]
) -> Parsed:
    """Parse `argv` without the command's name. `flags` adds the command's options. Options and
    settings may stand in any order."""
    parser = Parser(command, summary)
    usual = f"default: {DEFAULT_CONFIG}, or a run's own"
    said = f"a shipped config's name, or a path to a YAML file ({usual})"
    parser.add_argument("--config", metavar="NAME|FILE", help=said)
    said = "settings typed over the config's"
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=said)
    flags(parser)
    typed = parser.parse_intermixed_args(argv)
    return Parsed(typed.config or DEFAULT_CONFIG, typed.overrides, typed)


def options(
    argv: Sequence[str], command: str, summary: str, flags: Callable[[Parser], None]
) -> argparse.Namespace:
    """Parse `argv` of a command that takes no configuration. `flags` adds its options."""
    parser = Parser(command, summary)
    flags(parser)
    return parser.parse_args(argv)


def load(config: str, overrides: Sequence[str], trusted: bool = True) -> Config:
    """The checked configuration (see `ssp.selfplay.settings.load`). What is typed goes before what
    SSP's environment variables set, which is said on stderr."""
    from ssp.base import extras
    from ssp.config.load import stated
    from ssp.selfplay import settings

    below = []
    if extras.there("migration"):
        variables = extras.extra("migration", "SSP's environment", "variables")
        if any(os.environ.get(name) for name in variables.ACCEPTED):
            below, notes = variables.environment(os.environ, stated(config, overrides))
            for note in notes:
                say(f"note: {note}", file=sys.stderr)
    return settings.load(config, [*below, *overrides], trusted)


def end_politely() -> None:
    """Let SIGTERM, and a terminal that is closed, from here on interrupt the main thread as Ctrl-C
    does."""
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        on_hangup(lambda: signal.default_int_handler(signal.SIGHUP, None))


def hear(numbers: Collection[signal.Signals], then: Callable[[], object]) -> None:
    """Call `then` at each of these signals, on a thread of its own, so that it is called while the
    main thread is stuck too. `end_politely` takes the signals back."""
    told, tell = socket.socketpair()
    tell.setblocking(False)
    for number in numbers:
        signal.signal(number, lambda *_: None)  # the system's own answer would be to end
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        with told, tell:
            while number := told.recv(1):
                if number[0] in numbers:
                    then()

    threading.Thread(target=listen, daemon=True, name="signals").start()


def on_hangup(then: Callable[[], object]) -> None:
    """Call `then` once the terminal is closed; what is printed on it from then on goes nowhere.
    Under `nohup`, never."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    shown = [number for number in (1, 2) if os.isatty(number)]

    def gone(*_: object) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the system says it, and then the shell
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in shown:
            os.dup2(nowhere, number)
        then()

    signal.signal(signal.SIGHUP, gone)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. InputError when the address is taken, or
    not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    rule, step = "the server's port must be free", "choose another --port, or 0 for a free one"

    def told(error: Exception) -> str:
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"

    with holding(OSError, rule, told, step):
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # asyncio sets this only on its own sockets; without it a reply of two packets waits 40 ms for
    # an ACK
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address(host: str, port: int) -> str:
    """The URL of a server."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def number(least: float, most: float = math.inf) -> Callable[[str], float]:
    """A finite number in a range, for argparse."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or math.isinf(value):
            raise argparse.ArgumentTypeError(f"a number from {least:g} to {most:g}, not {text!r}")
        return value

    return read


def temperature(text: str) -> float:
    """A sampling temperature, for argparse: 0 is greedy."""
    from ssp.config.role import COLDEST

    value = number(0.0)(text)
    return value if value == 0.0 else number(COLDEST)(text)


def whole(least: int, most: float = math.inf) -> Callable[[str], int]:
    """A whole number in a range, for argparse."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a whole number from {least} to {most}, not {text!r}")
        return int(text)

    return read


def wholes(most: float = math.inf) -> Callable[[str], list[int]]:
    """Numbers from 1 with commas between, for argparse."""
    return lambda text: sorted({whole(1, most)(word) for word in text.split(",")})
