"""A terminal that is closed: what is under way is saved, and nobody writes to it any more."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from actors import cluster

PROGRAM = """
import asyncio, signal, sys
from pathlib import Path
from types import SimpleNamespace
from launch import train
from launch.cli import end_politely

async def main():
    over = asyncio.Event()
    game = SimpleNamespace(stop=over.set)
    display = SimpleNamespace(event=print, stop=lambda: None)
    seen = train._stop_on_interrupt(game, display)
    print("ready", flush=True)
    await asyncio.wait_for(over.wait(), float(sys.argv[2]))
    for _ in range(1000):  # what a run says while it saves
        print("saving " * 100, flush=True)
        await asyncio.sleep(0)
    Path(sys.argv[1]).write_text(f"saved {len(seen)}")

end_politely()
asyncio.run(main())
"""


def start(out: Path, seconds: float, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, str(out), str(seconds)]
    return subprocess.Popen(command, start_new_session=True, **options)  # type: ignore[call-overload, no-any-return]


def test_a_closed_terminal_saves_as_a_sigterm_does(tmp_path: Path) -> None:
    shown, terminal = pty.openpty()
    with start(tmp_path / "saved", 60, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        with os.fdopen(shown, "rb") as screen:
            assert b"ready" in screen.readline()
        for _ in range(3):  # the system says it, and the shell, more than once
            process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
    assert (tmp_path / "saved").read_text() == "saved 1"


def test_under_nohup_it_goes_on(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(tmp_path / "saved", 1, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.stdout is not None and b"ready" in process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    _, said = process.communicate(timeout=60)
    assert b"TimeoutError" in said and not (tmp_path / "saved").exists()


def test_what_ray_starts_does_not_hear_it() -> None:
    with cluster._hangups_held():
        blocked = subprocess.run(["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True).stdout
    assert int(blocked.split()[1], 16) & 1 << (signal.SIGHUP - 1)
    assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
