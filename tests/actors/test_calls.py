"""What actors were asked for: the records that a death report reads."""

from __future__ import annotations

from actors.calls import Calls


def test_lost_calls_are_what_a_death_report_tells() -> None:
    calls = Calls()
    with calls.of("solver-0", "play") as asked:
        calls.lose(asked, "it hung")
    with calls.of("solver-0", "ping"):
        pass
    lost = calls.at_death("solver-0")
    assert lost is asked and lost.lost == "it hung" and "for 0.0 s" in lost.told()
    again = calls.at_death("solver-0")
    assert again is not None and again.method == "ping" and "over after" in again.told()
    assert calls.at_death("solver-1") is None
