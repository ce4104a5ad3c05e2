"""The timeline: spans by track, bounded, continued after a resume."""

from __future__ import annotations

import json
import time

import pytest

from ssp.errors import InputError
from ssp.telemetry.timeline import Timeline


def events(path, kind="X"):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == kind]


def test_spans_have_track_start_and_length(tmp_path):
    path = tmp_path / "timeline.json"
    line = Timeline(path)
    now = time.perf_counter()
    line.span("proposer", "play", now, now + 0.25)
    line.span("learner", "update", now + 0.25, now + 0.5)
    line.save()
    play, update = events(path)
    assert (play["name"], play["dur"]) == ("play", 250_000)
    assert abs(play["ts"] / 1e6 - time.time()) < 5
    assert play["tid"] != update["tid"]
    assert {e["args"]["name"] for e in events(path, "M")} == {"proposer", "learner"}


def test_a_resumed_run_adds_and_the_oldest_go_first(tmp_path):
    path = tmp_path / "timeline.json"
    for run in range(2):
        line = Timeline(path, limit=3)
        for step in range(2):
            line.span("game", f"{run}-{step}", 0.0, 1.0)
        line.save()
    assert [event["name"] for event in events(path)] == ["0-1", "1-0", "1-1"]
    assert len(events(path, "M")) == 1


def test_a_foreign_file_is_not_overwritten(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text("[]")
    with pytest.raises(InputError, match="timeline"):
        Timeline(path)
