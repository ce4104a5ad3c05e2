"""A process that ends what this one started once this one is gone, however it ended: by process id,
never by name."""

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
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environ, open(f"/proc/{name}/stat", errors="replace") as stat:
                state, _, *of = stat.read().rpartition(")")[2].split()[:4]
                if state != "Z" and (group in of or (mark and mark in environ.read().split(b"\\0"))):
                    found += 1
                    os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass
    if not found:
        break
    time.sleep(0.2)
"""
"""A pidfd names this very process, so that a number used again is no mistake; it is readable when
the process is over."""


def keep(group: int, mark: str = "") -> subprocess.Popen[bytes]:
    """Start the keeper of a process group or session, and of what carries `mark` (NAME=VALUE) in
    its environment. It kills them once this process is gone, or its own stdin is closed; so hold
    what this returns. SspError when it cannot start."""
    environment = {name: value for name, value in os.environ.items() if f"{name}={value}" != mark}
    # A session of its own: else a Ctrl-C would end it first.
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), str(group), mark],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True, env=environment, cwd="/",
    )  # fmt: skip
    assert keeper.stdout is not None
    with keeper.stdout as said:
        if said.readline().strip() != b"watching":
            raise SspError(
                "no keeper for the processes of this one could start (it needs Linux 5.3 or newer)"
            )
    return keeper
