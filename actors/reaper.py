"""What an actor starts ends with it: a supervisor that kills the actor's processes when the actor is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from ssp.base.errors import SspError

_SUPERVISOR = """
import os, select, signal, sys
actor, group = int(sys.argv[1]), int(sys.argv[2])
watch = os.pidfd_open(actor)
print("watching", flush=True)
poll = select.poll()
poll.register(watch, select.POLLIN)
poll.poll()
try:
    os.killpg(group, signal.SIGKILL)
except ProcessLookupError:
    pass
"""
"""A pidfd names this very process, so that a number used again is no mistake; it is readable when the process is over."""


def guard() -> int:
    """Make this process the leader of a group of its own, which a supervisor kills after it; the supervisor's process id.

    Call before anything is started. SspError when the supervisor does not start.
    """
    own = os.getpid()
    if os.getpgid(0) != own:
        os.setpgid(0, 0)
    command = [sys.executable, "-I", "-S", "-c", _SUPERVISOR, str(own), str(own)]
    # A session of its own: else it would be in the group that it kills, and a Ctrl-C would end it first.
    supervisor = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert supervisor.stdout is not None
    with supervisor.stdout as said:
        if said.readline().strip() != b"watching":
            with suppress(ProcessLookupError):
                supervisor.kill()
            raise SspError("no supervisor for an actor's own processes could start (it needs Linux 5.3 or newer)")
    return supervisor.pid
