"""What only reports fails, and the run goes on: full disks, servers that hang, pipes that nobody reads, damaged files."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.telemetry.console import Console
from ssp.telemetry.display import Display
from ssp.telemetry.runlog import RunLog, read_metrics

SECONDS = 60
"""What goes on takes a second or two, on a busy machine more; what hangs takes for ever."""

FULL = """
import io, resource, sys
from contextlib import suppress
from pathlib import Path
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.telemetry.console import Console
from ssp.telemetry.display import Display

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
out = io.StringIO()
shown = Display(Config(steps=300), RunFolder(Path(sys.argv[1])), Console(out, width=120))
shown.restart(0)
for step in range(1, 301):
    shown.span("solver-0", "solve", step, step + 0.5)
    shown.write(step, "game", {"game/played": 6.0, "time/step": 3.0, "tokens_per_second": 1.0})
    for role in ("proposer", "solver"):
        shown.write(step, role, {"reward/mean": 0.5, **{f"figure/{n}": float(n) for n in range(20)}})
shown.finish()
shown.close()
print(out.getvalue())
"""


def test_files_that_may_not_grow_end_no_run(tmp_path: Path) -> None:
    """A limit of a file's size stands for a disk that is full: every write beyond it fails."""
    command = [sys.executable, "-c", FULL, str(tmp_path), "30000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "step 300/300" in done.stdout
    for name in ("metrics.jsonl", "tensorboard", "timeline.json"):
        assert done.stdout.count(f"no {name} any more") == 1, done.stdout
    kept = read_metrics(tmp_path / "metrics.jsonl")
    assert 0 < len(kept) < 900 and all(line["figure/3"] == 3.0 for line in kept if line["role"] == "solver")


def test_a_place_that_hangs_is_said_and_holds_up_nobody(tmp_path: Path) -> None:
    never, said, seen = threading.Event(), list[str](), list[int]()
    sinks = {"slow": lambda *row: never.wait(), "quick": lambda step, *row: seen.append(step)}
    log, began = RunLog(tmp_path, sinks, said.append), time.monotonic()
    for step in range(1010):  # one is under way, and 1000 wait
        log.write(step, "game", {"x": step})
    assert time.monotonic() < began + SECONDS
    assert len(said) == 1 and said[0].startswith("slow does not keep up")
    log.close()
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1010
    assert seen == [*range(1010)]
    never.set()


def test_a_pipe_that_nobody_reads_holds_up_nobody() -> None:
    reader, writer = os.pipe()
    with suppress(BrokenPipeError), open(writer, "w") as out:
        console, began = Console(out), time.monotonic()
        for _ in range(2000):
            console.event("x" * 1000)
        console.finish([], {"run folder": "somewhere"})
        assert time.monotonic() < began + SECONDS
        os.close(reader)  # ends what waits in it


def test_a_disk_behind_the_output_is_full_for_a_moment() -> None:
    class Disk(io.StringIO):
        full = False

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    disk = Disk()
    console = Console(disk)
    for disk.full in (False, True, False):
        console.event(f"full: {disk.full}")
    assert disk.getvalue().splitlines() == ["! full: False", "! full: False"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", b'{"step": 1, "role": "game"}\nnonsense\n{"step": 2, "role": "game"}\n'),
        ("metrics.jsonl", b'{"step": 1, "role": "eval", "eval/accuracy": "high"}\n'),
        ("metrics.jsonl", b"\x00\xff\x00\n" * 50),
        ("timeline.json", b'{"traceEvents": []}\n'),
        ("timeline.json", b"\x00" * 100),
    ],
)
def test_a_damaged_report_is_set_aside_with_a_word(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    out = io.StringIO()
    shown = Display(Config(steps=4), RunFolder(tmp_path), Console(out))
    shown.write(3, "eval", {"eval/accuracy": 0.5})
    shown.span("solver-0", "solve", 0.0, 1.0)
    shown.close()
    assert (tmp_path / f"{name}.damaged-1").read_bytes() == content
    assert f"{name}.damaged-1" in out.getvalue()
    assert [line["eval/accuracy"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [0.5]
    assert (tmp_path / "timeline.json").read_bytes().startswith(b"[\n")


STUCK = """
import asyncio, threading
from types import SimpleNamespace
from launch import train
from launch.cli import end_politely

async def main():
    display = SimpleNamespace(event=lambda text: print(text, flush=True), stop=lambda: None)
    train._stop_on_interrupt(SimpleNamespace(stop=lambda: None), display)
    print("ready", flush=True)
    stuck = threading.Lock()
    stuck.acquire()
    stuck.acquire()

end_politely()
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_a_run_whose_loop_is_stuck(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.stdout.readline().startswith("stopping")
            process.send_signal(number)
            assert process.wait(SECONDS) == 130
        finally:
            process.kill()
