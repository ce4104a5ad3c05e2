"""The timeline: spans by track, readable whenever its writer ends, continued after a resume."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from traces import read, trace

from ssp.base.errors import InputError
from ssp.telemetry.timeline import Timeline


def spans(path: Path) -> list[dict]:
    return [event for event in read(path) if event["ph"] == "X"]


def test_a_closed_timeline_is_json_and_its_spans_have_track_start_and_length(tmp_path):
    path = tmp_path / "timeline.json"
    line = Timeline(path)
    now = time.perf_counter()
    line.span("solver-0", "solve", now, now + 0.25, {"step": 3, "version": 2})
    line.span("solver-1", "solve", now, now + 0.5)
    line.span("solver-1 sync", "sync", now, now + 0.1)
    line.close()
    events = json.loads(path.read_text())
    assert events == read(path)
    first, second, sync = spans(path)
    assert (first["name"], first["dur"], first["args"]) == ("solve", 250_000, {"step": 3, "version": 2})
    assert abs(first["ts"] / 1e6 - time.time()) < 5
    assert first["pid"] == second["pid"] == sync["pid"] and len({e["tid"] for e in (first, second, sync)}) == 3
    names = {(e["tid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert names == {(first["tid"], "solver-0"), (second["tid"], "solver-1"), (sync["tid"], "solver-1 sync")}
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"solver"}


WRITER = """
import sys, time
from ssp.telemetry.timeline import Timeline
line, now = Timeline(sys.argv[1]), time.perf_counter()
for number in range(2000):
    line.span("solver-0", f"n{number}", now - 1.0, now)
print("written", flush=True)
for number in range(10**9):
    line.span("solver-0", "m", now - 1.0, now)
"""


def test_a_killed_writer_leaves_a_readable_file_and_the_next_one_goes_on(tmp_path):
    path = tmp_path / "timeline.json"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stdout.readline() == "written\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(30)
    writer.stdout.close()
    before = spans(path)
    assert [event["name"] for event in before[:2000]] == [f"n{number}" for number in range(2000)]
    assert path.read_text()[-3:] != "\n]\n"
    assert len(trace(path)["solver-0"]) == len(before)
    for run in range(2):  # after the kill, then after an end
        line = Timeline(path)
        line.span("solver-0", f"again-{run}", time.perf_counter(), time.perf_counter())
        line.close()
    assert [event["name"] for event in spans(path)] == [e["name"] for e in before] + ["again-0", "again-1"]
    assert len({event["tid"] for event in spans(path)}) == 1
    json.loads(path.read_text())


def test_spans_that_touch_do_not_overlap(tmp_path):
    """In whole microseconds too, on one track and inside each other; a file whose spans do is found out."""
    path = tmp_path / "timeline.json"
    line, start = Timeline(path), time.perf_counter()
    edges = [start + n * 0.0123456789 for n in range(1000)]
    for begin, end in itertools.pairwise(edges):
        line.span("judge-0", "grade", begin - 20, end - 20, {"step": 1})
        line.span("judge-0", "sync", begin - 20, begin - 20 + 0.001)
    line.close()
    assert len(trace(path)["judge-0"]) == 2 * 999
    line = Timeline(path)
    line.span("judge-0", "grade", start - 20, edges[1] - 20 + 1e-5)
    line.close()
    with pytest.raises(AssertionError, match="ends after the span"):
        trace(path)


def test_a_foreign_file_is_not_overwritten(tmp_path):
    path = tmp_path / "timeline.json"
    for text in ("[]", '{"traceEvents": 3'):
        path.write_text(text)
        with pytest.raises(InputError, match="timeline"):
            Timeline(path)
        assert path.read_text() == text


def test_a_run_that_goes_on_reads_only_the_end_of_a_long_timeline(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    line = Timeline(path)
    line.span("solver-0", "play", 0.0, 1.0)
    line.close()
    event = json.dumps(json.loads(path.read_text())[2])
    path.write_text("[\n" + f"{event},\n" * 40_000 + event + "\n]\n")
    tracemalloc.start()
    again = Timeline(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000 < path.stat().st_size / 10
    again.span("solver-0", "play", 1.0, 2.0)
    again.close()
    assert len(json.loads(path.read_text())) == 40_001 + 4
