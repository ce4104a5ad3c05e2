"""How long a judge's call may ask its endpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import families
import pytest

from ssp.base.episode import PROPOSER, Document, Episode
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from ssp.selfplay.workers.judge import Judge

ANSWERED = ("<answer> in Paris </answer>", "Correct")
RECALLED = ("<answer> Rome </answer>", "Wrong")
RATED = '{"rationale": "", "score": 0.5}'


@pytest.mark.parametrize(("closed", "said"), [("false", (*ANSWERED, RATED)), ("true", (*ANSWERED, *RECALLED, RATED))])
def test_a_call_that_takes_all_its_time_keeps_within_call_timeout(
    monkeypatch: pytest.MonkeyPatch, closed: str, said: Sequence[str]
) -> None:
    """It is asked for an answer, for a verdict on it, both once more without documents, and for a score."""
    spent: list[float] = []

    class Slow:
        def __init__(self, cfg: Any, seconds: float) -> None:
            self._seconds = seconds

        def ask(self, prompts: Sequence[str], read: Callable[[str], Any], *_: Any) -> list[Any]:
            spent.append(self._seconds)
            return [read(said[len(spent) - 1]) for _ in prompts]

    monkeypatch.setattr(build, "endpoint", Slow)
    monkeypatch.setattr(build, "tokenizer", lambda folder: families.qwen())
    asked = ["judge.kind=llm", "judge.url=http://127.0.0.1:1/v1", "judge.model=m", "referee.verifier=judge"]
    own = ["referee.evidence=none", "referee.rules=[malformed]", "proposer.reward_options.guide=judge"]
    own += [f"referee.closed_book={closed}"]
    alone = ["placement.proposers=1", "placement.solvers=1", "placement.judges=1"]
    alone += ["placement.layout=separate", "placement.engine_gpus=1", "placement.learner_gpus=1"]
    cfg = load("search-r1-qwen2.5-3b-grpo", ["game.questions=proposer", "data.questions=", *asked, *own, *alone])
    episode = Episode("p0", "g0", PROPOSER, 0, final="Which city is it?", stopped="final")
    episode.documents.append(Document("1", '"Paris"\nParis is a city.'))
    (verdict,), _ = Judge(cfg, Path("none")).verify([episode], [("Paris", 0)])
    assert (verdict.valid, verdict.guide, len(spent)) == (True, 0.5, len(said))
    assert sum(spent) <= 0.8 * cfg.placement.call_timeout + 1e-9
