"""What tests of several commands share."""

from __future__ import annotations

import pytest

from ssp.engines import ScriptedEngine
from ssp.game.world import tokenizer as words
from ssp.selfplay.workers import build


@pytest.fixture
def searcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every policy searches for the first word of the question and then answers "none"."""
    tokens = words.build()

    def script(ids: list[int], seed: int, turn: int) -> list[int]:
        word = tokens.decode(ids).split()[1]
        return list(tokens.encode("<answer> none </answer>" if turn else f"<search> {word} </search>"))

    monkeypatch.setattr(build, "engine", lambda *args: ScriptedEngine(script))
