"""`ssp data convert`: merging with a preference of splits, counts, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch import data
from launch.main import main as console
from ssp.base.errors import InputError
from ssp.data.readers import Question, Target, read_questions, read_targets
from ssp.data.writers import write_flashrag


def flashrag(folder: Path, **splits: int) -> Path:
    """A folder of FlashRAG's layout; ids repeat in every source, as in the published ones."""
    for split, count in splits.items():
        rows = [Question(f"{split}_{i}", f"{folder.name} {split} {i}?", (f"x{i}",)) for i in range(count)]
        write_flashrag(folder / f"{split}.jsonl", rows)
    return folder


def convert(*words: object) -> int:
    return data.main(["convert", *map(str, words)])


@pytest.mark.covers("SR-62")
def test_a_merged_train_file(tmp_path, capsys):
    nq, hotpotqa = flashrag(tmp_path / "nq", train=3, test=2), flashrag(tmp_path / "hotpotqa", train=4, dev=1)
    out = tmp_path / "train.parquet"
    assert convert(nq, hotpotqa, "--to", "search-r1", "--split", "train", "--out", out) == 0
    read = read_questions(out)
    assert len({q.id for q in read}) == 7
    assert [q.id for q in read[2:4]] == ["nq/train/2", "hotpotqa/train/0"]
    said = capsys.readouterr().out
    assert f"{out}: 7 rows, search-r1, nq 3, hotpotqa 4" in said


@pytest.mark.covers("SR-63")
def test_a_merged_test_file_prefers_test_then_dev_then_train(tmp_path, capsys):
    nq = flashrag(tmp_path / "nq", train=3, dev=5, test=2)
    hotpotqa, other = flashrag(tmp_path / "hotpotqa", train=4, dev=1), flashrag(tmp_path / "other", train=1)
    out = tmp_path / "test.jsonl"
    convert(nq, hotpotqa, other, "--to", "flashrag", "--out", out)
    assert [(q.source, q.split, q.question) for q in read_questions(out)] == [
        ("nq", "test", "nq test 0?"),
        ("nq", "test", "nq test 1?"),
        ("hotpotqa", "dev", "hotpotqa dev 0?"),
        ("other", "train", "other train 0?"),
    ]
    said = capsys.readouterr().out
    assert f"{nq}/test.jsonl: 2 rows, split test\n" in said
    assert f"{hotpotqa}/dev.jsonl: 1 rows, split dev (no test)\n" in said
    assert f"{other}/train.jsonl: 1 rows, split train (no test, no dev)\n" in said


@pytest.mark.covers("SP-08")
def test_questions_become_targets_without_questions(tmp_path):
    """Self-play starts from answers: no question text is left in the file."""
    out, again = tmp_path / "targets.jsonl", tmp_path / "again.parquet"
    convert(flashrag(tmp_path / "nq", train=2), flashrag(tmp_path / "b", train=1), "--to", "ssp", "--out", out)
    assert read_targets(out) == [Target("0", "x0"), Target("1", "x1"), Target("2", "x0")]
    assert "train 0?" not in out.read_text()
    convert(out, "--to", "ssp", "--out", again)
    assert read_targets(again) == read_targets(out)
    source = tmp_path / "source.jsonl"
    source.write_text(
        json.dumps({"ground_truth": "vure", "search_turns": "2", "sys_question_example": "Question 1: a?"})
    )
    convert(source, "--to", "ssp", "--out", tmp_path / "processed.jsonl")
    assert read_targets(tmp_path / "processed.jsonl") == [Target("0", "vure", 2, "Question 1: a?")]


def test_answers_that_normalise_to_nothing(tmp_path, capsys):
    rows = [{"question": "who?", "answers": ["The", "vure"]}, {"question": "band?", "answers": ["!!!"]}]
    path, out = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="line 1, field answers.*--drop-empty"):
        convert(path, "--to", "plain", "--out", out)
    assert not out.exists()
    convert(path, "--to", "plain", "--out", out, "--drop-empty")
    assert [q.answers for q in read_questions(out)] == [("vure",)]
    said = capsys.readouterr()
    assert "1 rows" in said.out and f'left out: {path}, line 2: "!!!"' in said.err
    path.write_text("".join(json.dumps({"ground_truth": gold, "search_turns": 1, "sys_question_example": ""}) + "\n"
                            for gold in ("The", "vure")))  # fmt: skip
    convert(path, "--to", "ssp", "--out", tmp_path / "targets.jsonl", "--drop-empty")
    assert (
        read_targets(tmp_path / "targets.jsonl") == [Target("0", "vure", 1)]
        and 'line 1: "The"' in capsys.readouterr().err
    )


def test_what_it_refuses(tmp_path, capsys):
    nq, out = flashrag(tmp_path / "nq", test=1, train=1), tmp_path / "out.jsonl"
    one, two = nq / "test.jsonl", flashrag(tmp_path / "b", test=1) / "test.jsonl"
    plain = ("--to", "plain", "--out", out)
    for words, said in (
        ((one, two, *plain), f"also on {one}, line 1"),
        ((one, two, *plain, "--source", "nq"), "1 for 2"),
        ((one, *plain, "--split", "test,dev"), "one split"),
        ((nq, *plain, "--split", "dev"), "dev.jsonl"),
        ((tmp_path / "none.jsonl", *plain), "must exist"),
        ((one, "--to", "search-r1", "--out", out), "--source and --split"),
        ((one, "--to", "plain", "--out", tmp_path / "out.parquet"), "ends in .jsonl"),
        ((one, "--to", "plain", "--out", one), "does not exist yet"),
        ((one, "--to", "csv", "--out", out), "invalid choice"),
    ):
        assert console(["data", "convert", *map(str, words)]) == 2
        assert said in capsys.readouterr().err
    assert not out.exists()
    convert(one, two, *plain, "--source", "nq, b", "--split", "test")
    assert [q.id for q in read_questions(out)] == ["nq/test/test_0", "b/test/test_0"]
