"""`ssp replay --resample` and `--live`: from the stored seed and checkpoint bit for bit, or by another policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from replayruns import copied, play, rows
from trainruns import POLICY

from launch import replay
from ssp import build, corpora
from ssp.episode import Document
from ssp.errors import InputError
from ssp.replay.again import Again
from ssp.replay.record import Records
from ssp.replay.weights import Weights
from ssp.rollout import Search
from ssp.runfolder import RunFolder
from ssp.tokenlog import Kind


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step; two lanes, and several blocks a round."""
    settings = ["steps=1", "proposer.batch=24", "solver.engine.lanes=2", "placement.proposers=2", "placement.solvers=2"]
    return play(tmp_path_factory.mktemp("again") / "whole", *settings)


@pytest.mark.slow
def test_every_episode_is_sampled_again_bit_for_bit(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = Records(RunFolder(whole))
    again = Again(records, Weights(records.run, records.cfg, records.versions))
    results = again.resample(records.found(records.played()))
    assert len(results) > 48 and len({one.found.file for one in results}) >= 6
    assert [one.found.episode.id for one in results if not one.exact] == []
    assert all(one.found.episode.stopped == one.now.stopped for one in results)
    id = results[0].found.episode.id
    assert replay.main([f"{whole}:{id}", "--resample"]) == 0
    assert "1 of 1 with the same tokens, 1 bit for bit" in capsys.readouterr().out


@pytest.mark.slow
def test_where_an_episode_parts_from_its_record_is_shown(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(whole / "checkpoints" / "proposer" / "v2")
    assert replay.main([str(whole), "--all", "--role", "proposer", "--resample", "--policy", other]) == 1
    said = capsys.readouterr().out
    records = Records(RunFolder(whole))
    again = Again(records, Weights(records.run, records.cfg, records.versions), Path(other))
    parted = [one for one in again.resample(records.found(records.played("proposer"))) if not one.same]
    assert parted and f"{24 - len(parted)} of 24 with the same tokens" in said
    one = parted[0]
    assert one.at is not None and one.found.episode.log.ids[: one.at] == one.now.log.ids[: one.at]
    assert f"{one.found.episode.id}, from token {one.at} on\n  recorded  " in said and "\n       now  " in said


class OtherWords:
    """A search in whose documents one word is another one."""

    def __init__(self, inner: Search, old: str, new: str) -> None:
        self._inner, self._old, self._new = inner, f" {old} ", f" {new} "

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        found = self._inner.search(queries, k, corpus)
        return [[replace(one, contents=one.contents.replace(self._old, self._new)) for one in some] for some in found]


@pytest.mark.slow
def test_another_reply_of_the_search_is_the_first_other_token(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever read the changed word parts from its record on that token; all others come out again."""
    records = Records(RunFolder(whole))
    played = records.found(records.played("solver"))
    weights = Weights(records.run, records.cfg, records.versions)
    (word,) = build.tokenizer(POLICY).encode("founder")
    real = corpora.search
    monkeypatch.setattr(corpora, "search", lambda *told: OtherWords(real(*told), "founder", "seat"))
    logs = [one.episode.log for one in played]
    read = [
        next((at for at, id in enumerate(log.ids) if id == word and log.kinds[at] == Kind.OBSERVATION), None)
        for log in logs
    ]
    assert [one.at for one in Again(records, weights).resample(played)] == read and {None} < set(read)
    at, one = next((at, one) for at, one in zip(read, played, strict=True) if at is not None)
    assert replay.main([f"{whole}:{one.episode.id}", "--resample"]) == 1
    said = capsys.readouterr().out
    assert f"from token {at} on" in said and "recorded  'founder " in said and "now  'seat " in said


@pytest.mark.slow
@pytest.mark.parametrize("role", ["solver", "proposer", "eval"])
def test_another_policy_plays_the_same_task(whole: Path, role: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = rows(whole, f"SELECT * FROM episodes WHERE role = '{role}'")[0]
    assert replay.main([f"{whole}:{row['id']}", "--live", "--policy", str(whole)]) == 0
    said = capsys.readouterr().out
    folder = "proposer" if role == "proposer" else "solver"
    assert row["id"] in said and f"on record: v1, now: {whole}/checkpoints/{folder}/v2\n" in said


@pytest.mark.slow
def test_a_record_without_seeds_is_replayed_forced_and_not_sampled(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(whole, tmp_path / "run")
    row = rows(folder, "SELECT e.* FROM episodes e JOIN games g ON g.id = e.game_id WHERE e.role = 'proposer' "
               "AND verdict = 'valid'")[0]  # fmt: skip
    path = folder / "episodes" / row["file"]
    table = pq.read_table(path).drop_columns(["seed"])
    path.unlink()
    pq.write_table(table, path)
    assert replay.main([f"{folder}:{row['id']}"]) == 0
    assert "noise documents were drawn with is not on record" in capsys.readouterr().out
    for way in (["--resample"], ["--live", "--policy", str(whole)]):
        with pytest.raises(InputError, match="seed on record"):
            replay.main([f"{folder}:{row['id']}", *way])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_thousands_of_episodes_come_out_of_their_records_again(duel: Path) -> None:
    """All that a quickstart run played, along its record: log-probs, masks, parse, verdict and reward."""
    from test_forced_replay import all_same

    seen, largest = all_same(duel)
    roles = ("proposer", "solver", "eval")
    assert sum(seen[role] for role in roles) >= 1000 and 0 < largest < 1e-4
    for role in roles:
        for what in ("ids", "mask", "final", "queries", "outcome", "versions", "reward", "log-probs"):
            assert seen[f"{role} {what}"] == seen[role], (role, what)
    assert seen["proposer verdict"] == seen["proposer"] == 16 * 96
    print(f"{dict(seen)}; largest difference {largest:.1e}")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_thousands_of_episodes_are_sampled_again_bit_for_bit(duel: Path) -> None:
    records = Records(RunFolder(duel))
    again = Again(records, Weights(records.run, records.cfg, records.versions))
    results = again.resample(records.found(records.played()))
    assert all(one.exact for one in results) and len(results) >= 1000
    print(f"{len(results)} episodes of {len({one.found.file for one in results})} blocks, bit for bit")
