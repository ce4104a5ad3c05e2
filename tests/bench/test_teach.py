"""The tool that taught the embedded policy, in short: its traces, first weights and batches, and what it writes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from localsearch import local

from ssp.game import protocols
from ssp.game.world import World
from ssp.game.world.vocabulary import FIRST_NAME_ID, VOCABULARY
from ssp.learning import coldstart
from ssp.record.manifest import read_record
from ssp.search.shard import in_memory
from ssp.selfplay.workers import build
from tests.bench.coldstart import mediocre, teach
from tests.bench.coldstart.mediocre import Trace, TraceMaker

MINI = protocols.get("mini")


def told(trace: Trace) -> str:
    return " ".join(text for text, _ in trace.pieces)


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_traces_are_play_and_mostly_true(role: str) -> None:
    """Prompt, turns that search, observations of the real search, and a final that the protocol reads."""
    maker = TraceMaker(World(5), np.random.default_rng(0))
    search, right = local("c", in_memory(maker.world.documents())), 0
    for place in range(90):
        trace, text = getattr(maker, role)(1 + place % 3), ""
        for at, (piece, wrote) in enumerate(trace.pieces):
            if at and not wrote:
                (query,) = MINI.queries(text)
                assert piece == MINI.observation(search.search([query], mediocre.TOPK, "c")[0])
            text += piece + " "
        final, given = MINI.final(role, text), MINI.parse(text)[0].text
        assert not trace.pieces[0][1] and trace.pieces[-1][1] and final is not None
        right += final == maker.world.answer(given) if role == "solver" else not maker.world.is_junk(final, given)
    assert 45 < right < 90


def test_verifier_traces_answer_from_their_documents_only() -> None:
    maker, none = TraceMaker(World(5), np.random.default_rng(0)), 0
    for _ in range(90):
        trace = maker.verifier(2)
        documents, question, *rest = MINI.parse(told(trace))
        answer = MINI.final("verifier", told(trace))
        assert all(f"{segment.text} ." in documents.text for segment in rest if segment.kind == "think")
        assert answer in ("none", maker.world.answer(question.text))
        none += answer == "none"
    assert 0 < none < 60


def test_three_heads_start_out_reading_one_two_three_places_back() -> None:
    model = teach.build(0)
    model.set_attn_implementation("eager")
    ids = torch.randint(0, len(VOCABULARY), (2, 60), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        weights = model(ids, output_attentions=True).attentions[0]
    for head, offset in enumerate(teach.OFFSETS):
        assert float(torch.diagonal(weights[:, head], -offset, dim1=1, dim2=2)[:, 5:].mean()) > 0.95


def test_batches_rename_consistently() -> None:
    (sample,) = [teach.sample_of(trace) for trace in mediocre.mixture(mediocre.makers(0), 60)[:1]]
    a, b = (next(teach.batches([sample], np.random.default_rng(seed)))[0].numpy()[0] for seed in (1, 2))
    names = sample[0] >= FIRST_NAME_ID
    assert (a[names] != b[names]).any() and (a[~names] == b[~names]).all()
    assert len(set(zip(sample[0], a, strict=True))) == len(set(sample[0])) == len(set(a))


def test_it_writes_the_same_folder_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In short; the second one is ended by its gate."""
    for name, value in {"STEPS": 12, "CURRICULUM_STEPS": 2, "CURRICULUM_TRACES": 40, "MIX_TRACES": 100}.items():
        monkeypatch.setattr(teach, name, value)
    for name, value in {
        "BATCH_TOKENS": 1024,
        "GATE_FROM": 4,
        "GATE_EVERY": 2,
        "GATE_QUESTIONS": 4,
        "COOL_DOWN": 3,
    }.items():
        monkeypatch.setattr(teach, name, value)
    made = [written(tmp_path / name, monkeypatch) for name in "ab"]
    assert made[0] == made[1] and (made[0]["steps"], made[0]["gate_passed"]) == (12, False)
    build.check_protocol(tmp_path / "a", "mini")
    monkeypatch.setattr(teach, "GATES", dict.fromkeys(teach.GATES, 0.0))
    assert written(tmp_path / "c", monkeypatch)["steps"] == 7


def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", ["teach.py", "--out", str(folder)])
    assert teach.main() == 0
    return read_record(folder)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_seed_0_passes_its_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the shipped one did; which of its bits are the same depends on the processor that multiplies."""
    monkeypatch.setattr(sys, "argv", ["teach.py", "--seed", "0", "--out", str(tmp_path / "made")])
    assert teach.main() == 0
    made, shipped = read_record(tmp_path / "made"), read_record(coldstart.ARTEFACT)
    assert made["gate_passed"]
    for name in ("tokenizer.json", "tokenizer_config.json", "tokenization_exact.py"):
        assert made["sha256"][name] == shipped["sha256"][name]
