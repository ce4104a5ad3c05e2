"""Worlds: determinism, functional facts, gold chains, files in the formats of real data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ssp.base import cache
from ssp.base.errors import InputError
from ssp.game import protocols
from ssp.game.world import World, files, tokenizer
from ssp.game.world.vocabulary import COUNTS, NAMES, SCHEMA, VOCABULARY


def facts(world: World) -> set[tuple[str, str, str]]:
    return {(s, r, o) for s, row in world.facts.items() for r, o in row.items()}


def test_a_seed_is_a_world_and_two_seeds_share_no_facts_to_speak_of() -> None:
    first, again, other = World(1), World(1), World(2)
    assert facts(first) == facts(again) and first.documents() == again.documents()
    assert len(facts(first) & facts(other)) < 0.02 * len(facts(first))


def test_facts_follow_the_schema() -> None:
    world = World(3)
    assert len(world.entities) == len(set(world.entities)) == sum(COUNTS.values()) == 390
    for name, row in world.facts.items():
        assert set(row) == set(SCHEMA[world.types[name]])
        assert len(set(row.values())) == len(row) and name not in row.values()
        assert all(world.types[row[relation]] == kind for relation, kind in SCHEMA[world.types[name]].items())


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_questions_have_gold_chains(hops: int) -> None:
    world = World(4)
    drawn = world.questions(hops, 100, seed=0)
    assert drawn[:10] == world.questions(hops, 10, seed=0) != world.questions(hops, 10, seed=1)
    assert len({q.text for q in drawn}) == 100
    for q in drawn:
        assert len(q.chain) == q.hops == hops == world.hops(q.text)
        assert world.answer(q.text) == q.answer == q.chain[-1][2]
        assert all(before[2] == after[0] for before, after in zip(q.chain, q.chain[1:], strict=False))
        assert q.answer not in q.text.split()
        assert not world.is_junk(q.text, q.answer) and world.is_junk(q.text, "nobody")


def test_oracle_on_malformed_text() -> None:
    world = World(4)
    for text in ("", "?", "a b", f"{world.entities[0]} ?", f"{world.entities[0]} nonsense ?"):
        assert world.answer(text) is None
        assert world.is_junk(text, world.entities[0])
    with pytest.raises(InputError):
        world.questions(1, 5000, 0)


def test_files_are_in_the_known_formats(tmp_path: Path) -> None:
    made = files.ensure(5, tmp_path)
    world = World(5)
    rows = {name: [json.loads(line) for line in made[name].open()] for name in ("corpus", "targets", "eval")}
    assert [set(row) for row in rows["corpus"]] == [{"id", "contents"}] * 390
    assert rows["corpus"][0]["contents"].startswith(f'"{world.entities[0]}"\n')
    assert [row["ground_truth"] for row in rows["targets"]] == world.targets()
    for row in rows["targets"]:
        assert row["search_turns"] in ("1", "2", "3")
        assert row["sys_question_example"].count("Question") == 3
        assert row["ground_truth"] not in [line.split()[2] for line in row["sys_question_example"].split("\n")]
    hops = [row["metadata"]["hops"] for row in rows["eval"]]
    assert {k: hops.count(k) for k in (1, 2, 3, 4)} == dict.fromkeys((1, 2, 3, 4), 512)
    assert all([world.answer(row["question"])] == row["golden_answers"] for row in rows["eval"])
    spare = [json.loads(line) for line in made["questions"].open()]
    assert not {row["question"] for row in spare} & {row["question"] for row in rows["eval"]}


def test_files_are_cached_and_an_altered_one_is_made_anew(tmp_path: Path) -> None:
    made = files.ensure(6, tmp_path)
    text, stamp = made["corpus"].read_text(), made["corpus"].stat().st_mtime_ns
    assert files.ensure(6, tmp_path)["corpus"].stat().st_mtime_ns == stamp
    made["corpus"].write_text("{}\n")
    assert files.ensure(6, tmp_path)["corpus"].read_text() == text
    (made["corpus"].parent / "world.json").write_text("{")
    assert files.ensure(6, tmp_path) == made
    assert [path.name for path in (tmp_path / "worlds").iterdir()] == ["v1-6"]


def test_resolve_names_worlds_and_leaves_paths_alone(tmp_path: Path) -> None:
    assert files.resolve("data/x.jsonl", "corpus", tmp_path) == "data/x.jsonl"
    assert files.resolve("world:train", "corpus", tmp_path) == str(files.ensure(11, tmp_path)["corpus"])
    assert files.is_world("world:heldout") and files.is_world("world:77") and not files.is_world("x.jsonl")
    assert files.oracle("data/x.jsonl", False) is None and files.oracle("world:5", True) is None
    with pytest.raises(InputError, match="world:train"):
        files.resolve("world:tran", "corpus", tmp_path)


def test_tokenizer_round_trips_and_knows_every_tag(tmp_path: Path) -> None:
    tok = tokenizer.build()
    assert len(tok) == len(VOCABULARY)
    text = " ".join(VOCABULARY)
    ids = tok.encode(text, add_special_tokens=False)
    assert ids == list(range(len(VOCABULARY))) and tok.decode(ids) == text
    tok.save_pretrained(tmp_path)
    again = type(tok).from_pretrained(tmp_path)
    assert again.encode(text) == ids and again.decode(ids) == text
    mini = protocols.get("mini")
    assert all(len(tok.encode(stop)) == 1 for stop in mini.stops("solver"))
    assert tok.unk_token_id not in tok.encode(mini.render("solver", {"question": "x"}).replace("x", NAMES[0]))
    assert tok.encode("zzz") == [tok.unk_token_id]


def test_of_two_that_make_an_entry_at_once_the_first_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def makes(folder: Path) -> None:
        (folder / "whose").write_text("ours")
        (tmp_path / "entry").mkdir()
        (tmp_path / "entry" / "whose").write_text("theirs")

    monkeypatch.setattr(Path, "exists", lambda self: False)  # as in the moment before the other one was there
    assert (cache.put(tmp_path / "entry", makes, Path.is_dir) / "whose").read_text() == "theirs"
    assert [file.name for file in tmp_path.iterdir()] == ["entry"]
