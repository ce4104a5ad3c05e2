"""Signals to a run: a closed terminal saves what is under way; Ctrl-C twice ends actors that start."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


STARTING = """
import asyncio, time
from types import SimpleNamespace
from actors import metrics, program
from launch import train
from launch.cli import end_politely, run
from ssp.telemetry import display

class Program:
    actors = []
    def __init__(self, *_): pass
    async def ready(self):
        print("starting", flush=True)
        await asyncio.Event().wait()
    def end(self):
        print("ending", flush=True)
        time.sleep(SECONDS)

async def watch(*_): pass

program.Program, metrics.RayMetrics, metrics.watch = Program, lambda name: SimpleNamespace(write=None), watch
shown = SimpleNamespace(event=lambda text: None, stop=lambda: None, close=lambda: None, activity=None)
display.Display = lambda *_: shown

def command(_):
    end_politely()
    return train.play(SimpleNamespace(cfg=SimpleNamespace(roles=())), SimpleNamespace(name="run"), shown, None)

raise SystemExit(run(command, []))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_signals_while_the_actors_start_end_the_run_without_a_stack(number: signal.Signals, times: int) -> None:
    program = STARTING.replace("SECONDS", "60" if times == 2 else "0")
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and b"starting" in process.stdout.readline()
        process.send_signal(number)
        assert b"ending" in process.stdout.readline()
        if times == 2:
            process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == (b"" if times == 2 else b"ssp: interrupted\n")
