"""Whatever fails and when, a run ends at its last step, and the laws hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.selfplay import anyfaults, fakes


@pytest.mark.parametrize("seed", range(6, 14))
def test_anything_may_fail_at_any_time(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)
    anyfaults.one_pair_a_game(anyfaults.played(tmp_path / "run", seed, monkeypatch))
