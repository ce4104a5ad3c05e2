"""What looks at a run from beside the core trusts it as little as the core does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import test_trust
from tests.strangers import test_strangers_agents
from tests.test_trust import evil, whole

__all__ = ["evil", "whole"]
YARDSTICK = ["bank", "{run}", "--yardstick", "1"]
SERVED = ["serve", "--policy", "{run}", "--stdio"]


@pytest.mark.slow
def test_a_yardstick_executes_none_of_a_runs_code(
    evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test_trust.test_looking_at_a_run_executes_none_of_its_code(YARDSTICK, evil, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("argv", [YARDSTICK, SERVED], ids=" ".join)
def test_none_of_a_runs_tools_is_started(
    argv: list[str], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    test_trust.test_looking_at_a_run_starts_none_of_its_tools(argv, whole, tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize(("key", "value"), test_strangers_agents.PLACES.items())
def test_a_policy_is_not_served_with_code_that_has_changed(
    key: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(test_strangers_agents, "LOOKS", [["serve", "--policy", "run", "--stdio", "--trust-code"]])
    file = "mine.yaml" if key == "protocol" else "mine.py"
    test_strangers_agents.test_code_that_has_changed_since_a_run_was_played_is_not_taken_for_the_runs(
        key, value, file, tmp_path, monkeypatch, capsys
    )


@pytest.mark.parametrize("key", ["solver.agent", "solver.tools"])
def test_a_policy_that_nobody_trusts_is_not_served(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["serve", "--policy", "run", "--stdio", "--trust-code"]
    test_strangers_agents.test_who_trusts_nothing_is_refused_at_the_start(argv, key, tmp_path, monkeypatch, capsys)
