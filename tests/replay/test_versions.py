"""Log-probs of tokens that several versions drew, where the weights of a version lie, and which solver verified."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ssp.selfplay.settings import load
from ssp.views.replay import forced
from ssp.views.replay.forced import Verdicts

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))

from suite_models import arrays, logprobs, network

from ssp.base.episode import Document, Episode, Verdict
from ssp.base.tokenlog import Kind, TokenLog
from ssp.engines.base import Sampling
from ssp.engines.decoder import Decoder
from ssp.engines.rows import Rows
from ssp.engines.turns import Turn, Turns
from ssp.record.runfolder import RunFolder
from ssp.selfplay.versions import ANCHORS
from ssp.selfplay.workers import build
from ssp.views.replay.forced import recompute
from ssp.views.replay.record import Weights

MODEL = "qwen2-tied"


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@torch.inference_mode()
def test_versions_that_change_in_the_middle_of_a_turn(tmp_path: Path, temperature: float) -> None:
    """The embedded engine over a switch of weights that keeps its keys, then an observation and another turn."""
    old, new = network(MODEL), network(MODEL, 1)
    rows = Rows(old.config.to_dict(), "float32", True)
    rows.replace(Decoder(rows.shape, arrays(old), rows.dtype), keep=False)
    rows.open([0], [7])
    turns, log = Turns(rows), TokenLog()
    log.append(Kind.PROMPT, list(range(10, 30)))
    turns.add([Turn(0, log.ids[:], Sampling(temperature, 12, ()), 12, 1)])
    for _ in range(5):
        turns.advance()
    rows.replace(Decoder(rows.shape, arrays(new), rows.dtype), keep=True)
    turns.switch(2)
    ended = []
    while turns:
        ended += turns.advance()
    ((_, first),) = ended
    assert first.versions == [1] * 5 + [2] * 7
    log.append_model(first.ids, first.logprobs, first.versions)
    log.append(Kind.OBSERVATION, [40, 41, 42])
    turns.add([Turn(0, [40, 41, 42], Sampling(temperature, 4, ()), 4, 2)])
    ended = []
    while turns:
        ended += turns.advance()
    log.append_model(ended[0][1].ids, ended[0][1].logprobs, 2)
    found = recompute(log, temperature, {1: old, 2: new}.__getitem__)
    written = np.asarray(log.versions) >= 0
    assert np.abs(found - np.asarray(log.logprobs))[written].max() < 1e-5 and not found[~written].any()
    alone = np.asarray([0.0, *logprobs(new, log.ids, temperature)])
    assert np.abs(alone - np.asarray(log.logprobs))[-4:].max() > 1e-3, "else keys of the old weights do not matter"


def test_tokens_after_a_drop_and_recalled_ones_have_their_own_context() -> None:
    net, log = network(MODEL), TokenLog()
    log.append(Kind.PROMPT, [10, 11, 12])
    log.append_model([20, 21], [0.0, 0.0], 4)
    log.append(Kind.OBSERVATION, [30, 31, 32, 33])
    log.drop(5, 9)
    log.append_model([22, 23, 24], [0.0] * 3, 4)
    log.recall(10, 11)
    found = recompute(log, 1.0, lambda version: net)
    assert np.allclose(found[3:5], logprobs(net, [10, 11, 12, 20, 21])[2:], atol=1e-5)
    assert np.allclose(found[9:], logprobs(net, [10, 11, 12, 20, 21, 22, 23, 24])[4:], atol=1e-5)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_a_version_has_the_weights_that_its_start_loaded(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved at 0, 2 and 4; gone on with from 2 and, after that start had saved 4 again, from 4."""
    monkeypatch.setattr(build, "model_dir", lambda cfg, role, run: Path(f"start-{role}"))
    given = {1: (1, 0), 2: (1, 1), 3: (1, 2), 4: (1, 3), 5: (1, 4), 6: (2, 2), 7: (2, 3), 8: (2, 4), 9: (3, 4)}
    for name in ("solver/v3", "solver/v8"):
        (run.checkpoints / name).mkdir(parents=True)
    weights = Weights(run, load("quickstart", []), {"solver": given})
    assert weights.folder("solver", 3) == weights.folder("solver", 6) == run.checkpoint("solver", 3)
    assert weights.folder("solver", 8) == weights.folder("solver", 9) == run.checkpoint("solver", 8)
    assert weights.folder("solver", 1) == Path("start-solver"), "pruned, but where it came from is known"
    assert [weights.folder("solver", v) for v in (2, 4, 5, 7, 10, ANCHORS + 1)] == [None] * 6
    assert weights.kept("solver") == {v: weights.folder("solver", v) for v in (1, 3, 6, 8, 9)}


def test_a_shared_policy_lies_under_its_learner(run: RunFolder) -> None:
    cfg = load("quickstart", ["proposer.policy=shared", "solver.policy=shared"])
    (run.checkpoints / "solver" / "v5").mkdir(parents=True)
    given = {"proposer": {1: (1, 0), 3: (1, 1)}, "solver": {2: (1, 0), 5: (1, 1)}}
    assert Weights(run, cfg, given).folder("proposer", 3) == run.checkpoint("solver", 5)


def test_a_policy_that_never_learns_is_what_it_started_from(run: RunFolder) -> None:
    (run.checkpoints / "solver" / "v1").mkdir(parents=True)
    weights = Weights(run, load("quickstart", []), {"solver": {1: (1, 0), 2: (2, 7), 3: (3, 9)}})
    assert {weights.folder("solver", version) for version in (1, 2, 3)} == {run.checkpoint("solver", 1)}


def test_a_member_of_the_league_is_there_when_its_checkpoint_went(run: RunFolder) -> None:
    """Under the number that its role published it by, also where a policy is shared."""
    given = {"proposer": {1: (1, 0), 3: (1, 1), 4: (2, 1)}, "solver": {2: (1, 0), 5: (1, 1), 6: (2, 1)}}
    (run.path / "members" / "proposer" / "v3").mkdir(parents=True)
    (run.path / "members" / "solver" / "v5").mkdir(parents=True)
    shared = load("quickstart", ["proposer.policy=shared", "solver.policy=shared"])
    for cfg in (load("quickstart", []), shared):
        weights = Weights(run, cfg, given)
        assert {weights.folder("proposer", version) for version in (3, 4)} == {run.member("proposer", 3)}
        assert {weights.folder("solver", version) for version in (5, 6)} == {run.member("solver", 5)}
    (run.checkpoints / "solver" / "v5").mkdir(parents=True)
    assert Weights(run, shared, given).folder("proposer", 3) == run.checkpoint("solver", 5)


ROWS = [  # round, incarnation, whether a past version played, which
    (2, 1, 0, 3),
    (3, 1, 0, 4),
    (3, 1, 0, 4),
    (3, 1, 0, -1),  # it wrote nothing
    (3, 1, 1, 2),  # a past version, met in the league
    (3, 2, 0, 9),  # the same round, when the run was gone on with
    (5, 1, 1, 2),
    (6, 1, 0, 6),
    (6, 1, 0, 7),
]


def verified_by(round_: int, incarnation: int, monkeypatch: pytest.MonkeyPatch, *settings: str) -> tuple[Any, str]:
    cfg = load("quickstart", ["referee.verifier=solver", *settings])
    names = ("round", "incarnation", "past", "policy_version_max")
    rows = [{"kind": "attempt", **dict(zip(names, row, strict=True))} for row in ROWS]
    records: Any = SimpleNamespace(cfg=cfg, played=lambda role: rows, block=lambda file: [])
    weights: Any = SimpleNamespace(folder=lambda role, version: Path(f"{role}/v{version}"))
    monkeypatch.setattr(forced, "Judge", lambda cfg, folder: folder)
    found: Any = SimpleNamespace(entry={"round": round_, "incarnation": incarnation})
    return Verdicts(records, weights)._judge(found)


@pytest.mark.parametrize(("incarnation", "version"), [(1, 4), (2, 9)])
def test_the_newest_solver_of_the_round_verified(
    incarnation: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked: a past proposer's questions are verified by the newest solver too, whoever answers them."""
    assert verified_by(3, incarnation, monkeypatch) == (Path(f"solver/v{version}"), "")


@pytest.mark.parametrize("round_", [4, 5, 6])
def test_where_it_is_not_certain_nobody_verifies(round_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answered in the round, only a past version did, or several did."""
    judge, why = verified_by(round_, 1, monkeypatch)
    assert judge is None and "not on record" in why


def test_in_flight_an_answer_may_be_of_newer_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    flying = ["schedule.in_flight=true", "schedule.max_staleness.proposer=2",
              "schedule.max_staleness.solver=2", "proposer.algorithm=grpo", "proposer.loss=tis"]  # fmt: skip
    judge, why = verified_by(3, 1, monkeypatch, *flying)
    assert judge is None and "not on record" in why


def test_a_verdict_by_rules_alone_needs_no_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """With documents at a server and nobody who verifies, the texts that a transcript does not have are not looked for."""
    settings = ["referee.verifier=none", "referee.evidence=none", "referee.noise=0", "retriever.url=http://127.0.0.1:1"]
    cfg = load("quickstart", settings)
    episode = Episode("p", "g", "proposer", 0, final="a seat ?", hits=[1], documents=[Document("d", "")])
    game = {"id": "g", "number": 0, "target": "b", "question": "a seat ?", "verdict": "valid", "rule": None}
    found: Any = SimpleNamespace(episode=episode, game=game, file="f", entry={"round": 1, "incarnation": 1})
    seen: list[Episode] = []

    class Rules:
        def __init__(self, *_: Any) -> None: ...

        def verify(self, block: list[Episode], asked: Any) -> tuple[list[Verdict], float]:
            seen.extend(block)
            return [Verdict(True)], 0.0

    monkeypatch.setattr(forced, "Judge", Rules)
    monkeypatch.setattr(forced.build, "model_dir", lambda *_: Path("start"))
    records: Any = SimpleNamespace(cfg=cfg, run=None, block=lambda file: [found], asked=lambda played: ("b", 0))
    nothing: Any = None
    verdict = Verdicts(records, nothing).of(found)
    assert verdict.same and not verdict.untold and seen == [episode]
