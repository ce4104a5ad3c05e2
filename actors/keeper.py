"""A process that, once this one is gone, ends what this one started: by process id, never by
name."""

import os
import subprocess
import sys

from ssp.base.errors import SspError

_PROGRAM = """
import os, select, signal, sys, time
watched, group, mark = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode()
poll = select.poll()
poll.register(os.pidfd_open(watched), select.POLLIN)
poll.register(0, select.POLLIN)
print("watching", flush=True)
poll.poll()
for _ in range(50):
    killed = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environ, open(f"/proc/{name}/stat", errors="replace") as stat:
                state, _, *of = stat.read().rpartition(")")[2].split()[:4]
                if state != "Z" and (group in of or (mark and mark in environ.read().split(b"\\0"))):
                    killed += 1
                    os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass
    if not killed:
        break
    time.sleep(0.2)
"""
"""It watches a pidfd, which names this very process even when its number is used again, and is
readable once the process is over."""


def keep(group: int, mark: str = "") -> subprocess.Popen[bytes]:
    """Start the keeper of a process group or session, and of the processes with `mark` (NAME=VALUE)
    in their environment. It kills them once this process is gone, or its own stdin is closed; so
    hold what this returns. SspError when it cannot start."""
    environment = {name: value for name, value in os.environ.items() if f"{name}={value}" != mark}
    arguments = [str(os.getpid()), str(group), mark]
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # else a Ctrl-C would end it first
        env=environment,
        cwd="/",
    )
    assert keeper.stdout is not None
    with keeper.stdout as said:
        ready = said.readline().strip() == b"watching"
    if not ready:
        needs = "it needs Linux 5.3 or newer"
        raise SspError(f"no keeper for the processes of this one could start ({needs})")
    return keeper
