"""Transcripts: the token log comes back bit by bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ssp.base.episode import Document, Episode, Outcome
from ssp.base.errors import Fault, InputError
from ssp.base.tokenlog import Kind
from ssp.record import episodes as transcripts


def episode(number: int, tokens: int = 40) -> Episode:
    rng = np.random.default_rng(number)
    made = Episode(
        id=f"e{number}", game=f"g{number}", role="solver", attempt=number % 6, text="<q> a </q> ünï", stopped="final"
    )
    made.log.append(Kind.PROMPT, rng.integers(0, 549, tokens).tolist())
    for version in (3, 4):
        drawn = rng.integers(0, 549, tokens).tolist()
        made.log.append_model(drawn, np.log(rng.random(tokens, dtype=np.float32)).tolist(), version)
        made.log.append(Kind.OBSERVATION, rng.integers(0, 549, tokens).tolist())
    made.queries, made.documents = ["a seat", "b"], [Document("d1", '"T"\nx'), Document("d2", "y")]
    return made


def test_the_round_trip_is_exact(tmp_path):
    first, bare, void = episode(1), Episode("b", "g", "proposer", 0), episode(3)
    first.final, first.outcome = "bino", Outcome.SCORED
    void.void(Fault("retriever_down", "no\n\x1b[31mserver"))
    assert void.detail == "no \\x1b[31mserver"
    first.log.drop(80, 90)
    first.log.recall(40, 44)
    transcripts.write(tmp_path / "new" / "x.parquet", [first, bare, void])
    again = transcripts.read(tmp_path / "new" / "x.parquet")
    for before, after in zip([first, bare, void], again, strict=True):
        assert after.log == before.log
        assert [d.id for d in after.documents] == [d.id for d in before.documents]
        before.documents, after.documents = [], []
        assert after == before
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x.parquet"]


def test_what_a_fault_said_has_no_secret_of_the_environment(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-0123456789")
    monkeypatch.setenv("OTHER_TOKEN", "sk-0123456789-and-more")
    monkeypatch.setenv("LONG_NAME", "visible-value")
    void = episode(1)
    void.void(Fault("agent_failed", "AuthError: sk-0123456789-and-more, sk-0123456789 at visible-value"))
    assert void.detail == "AuthError: ***, *** at visible-value"


def test_files_of_before_have_no_tools_and_no_detail(tmp_path):
    transcripts.write(tmp_path / "x.parquet", [episode(1), episode(2)])
    pq.write_table(pq.read_table(tmp_path / "x.parquet").drop_columns(list(transcripts.ADDED)), tmp_path / "y.parquet")
    again = transcripts.read(tmp_path / "y.parquet")
    assert [(one.tools, one.asked, one.detail) for one in again] == [([], [], "")] * 2
    assert again[0].tools is not again[1].tools


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "x.parquet").write_text("text")
    pq.write_table(pa.table({"id": ["a"], "question": ["who ?"]}), tmp_path / "questions.parquet")
    for name in ("x.parquet", "none.parquet", "questions.parquet"):
        with pytest.raises(InputError, match="must be parquet"):
            transcripts.read(tmp_path / name)
