"""Starts a user's own programs: agents, and servers of tools.

A program, and all that is in its process group, ends with this process, even where that is killed.
Only Linux can do this; elsewhere a program outlives a killed process."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from ssp.base.errors import hold, holding

_TIED = """
import ctypes, os, signal, sys
parent, *words = sys.argv[1:]
def end(*_):
    os.killpg(0, signal.SIGKILL)
if os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
signal.signal(signal.SIGUSR1, end)
ctypes.CDLL(None).prctl(1, int(signal.SIGUSR1))
if os.getppid() != int(parent):
    end()
child = os.fork()
if not child:
    try:
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"{words[0]}: {error}".encode())
        os._exit(127)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for number in (0, 1):
    os.close(number)
_, status = os.waitpid(child, 0)
code = os.waitstatus_to_exitcode(status)
os._exit(code if code >= 0 else 128 - code)
"""
"""It starts the program and waits for it. When the thread that has started it is over, Linux tells
it (PR_SET_PDEATHSIG), and it kills its process group with itself. A polite signal is the program's
to answer."""


def words(command: str, rule: str) -> list[str]:
    """The words of a command whose program is there. InputError with `rule` else."""
    with holding(ValueError, rule, command, "close what is quoted"):
        split = shlex.split(command)
    hold(split, rule, command or "''", "name a program")
    program = split[0]
    missing = f"{program}, which is no program here"
    hold(shutil.which(program), rule, missing, "correct the command")
    return split


def tied(command: Sequence[str]) -> list[str]:
    """The command that runs `command` and ends with this process. Start it in a thread that lives
    as long as the process."""
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-ISc", _TIED, str(os.getpid()), *command]
