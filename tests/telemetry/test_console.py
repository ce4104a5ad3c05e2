"""The console on a pipe and on a terminal."""

from __future__ import annotations

import io

from ssp.telemetry.console import Console


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


FIGURES = {"proposer_reward": 0.4, "solver_reward": 0.6, "win_rate": 0.61, "hops": 1.5, "tokens_per_second": 5123.0}


def run(out: io.StringIO) -> str:
    console = Console(out, width=160)
    console.start(80)
    console.update({"step": 1, **FIGURES})
    console.event("proposer-0 died, restarting [again]")
    console.update({"step": 2, "accuracy": 0.512, "unknown": 1.0})
    console.finish([("2-hop accuracy", 0.5, 0.75, ".1%"), ("hops", 1.5, None, ".2f")], {"run": "/long/" + "x" * 300})
    return out.getvalue()


def test_one_plain_line_a_step_on_a_pipe():
    lines = run(io.StringIO()).splitlines()
    assert lines[0].startswith("step 1/80  proposer 0.40  solver 0.60  win 0.61  hops 1.50  tok/s 5,123  ETA ")
    assert lines[1] == "! proposer-0 died, restarting [again]"
    assert "step 2/80" in lines[2] and "held-out 51.2%" in lines[2] and "win 0.61" in lines[2]
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "run: /long/" + "x" * 300


def test_a_terminal_shows_what_goes_on_now_also_before_the_first_step(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    console = Console(out, width=60)
    console.start(80, now=lambda: "solver solve 2/2 3s, " + "x" * 100)
    console.stop()
    text = out.getvalue()
    assert "step 0/80  ░░░░░░░░░░░░░░░░░░░░   0%  ETA -" in text
    assert "now: solver solve 2/2 3s, xxx" in text and "…" in text and "x" * 60 not in text


def test_the_time_left_counts_only_this_process(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ssp.telemetry.console.time.monotonic", lambda: now[0])
    out = io.StringIO()
    console = Console(out)
    console.start(80, done=40)
    now[0] = 100.0
    console.update({"step": 50})
    assert out.getvalue().strip() == "step 50/80  ETA 5:00"


def test_preparation_prints_a_line_every_tenth() -> None:
    out = io.StringIO()
    console = Console(out)
    for done in (0.0, 0.01, 0.09, 0.1, 0.11, 0.55, 1.0):
        console.progress(done, "cold start")
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["0%", "10%", "55%", "100%"]
