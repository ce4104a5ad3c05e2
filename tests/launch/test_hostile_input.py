"""Input that no parser follows, names that no terminal shows, values that only look right: refused before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch import main as console
from ssp.base.errors import InputError
from ssp.base.printable import printable
from ssp.config.load import to_yaml
from ssp.data.readers import read_corpus, read_questions, stream_corpus
from ssp.selfplay.settings import load

NESTED = 3000
LISTS, OBJECTS = "[" * NESTED + "]" * NESTED, '{"a":' * NESTED + "1" + "}" * NESTED
DRY = ["train", "--dry-run"]
PARSED = (50, 150, 300, 700)
"""Depths that some parsers follow."""
UNSHOWN = ["a\nb", "a\tb", "a\x1b[2Jb", "\u202eab", "a\u200fb", "x" * 100_000, "é" * 120, "\x7f", "..", "a/b"]
NUMBERS = {
    "game.attempts": 10**15, "void.limit": "9" * 400, "seed": 2**63, "eval.every": 10**30, "solver.learner.lr": "nan",
    "solver.limits.turn_tokens": "inf",
}  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert console.main([*map(str, argv)]) == 2
    shown = capsys.readouterr()
    assert printable(shown.err) == shown.err and len(shown.err) < 5000
    return shown.err


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """As much of a run's folder as commands look at first."""
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(load("quickstart")))
    (folder / "metrics.jsonl").write_text('{"step": 1, "role": "eval", "time": 1.0}\n')
    return folder


SETTINGS = [
    *(
        (f"{key}={value}", "")
        for key in ("run.name", "solver.model", "solver.reward_options", "data.eval", "steps")
        for value in (LISTS, OBJECTS, "{a: " * NESTED + "1" + "}" * NESTED, "[" * NESTED)
    ),
    *(("data.eval=" + "[" * depth + "]" * depth, "") for depth in PARSED),
    *(("solver.reward_options=" + "{a: " * depth + "1" + "}" * depth, "") for depth in PARSED),
    (".".join("a" * NESTED) + "=1", ""),
    *(
        (word, "")
        for word in ("steps=\udcff", "run.name=a\udcfe", "\udcff=1", "run.dir=\ud800", "protocol=\udcff.yaml")
    ),
    *((f"run.name={json.dumps(name)}", "run.name") for name in UNSHOWN),
    *((f"solver.loss={place}", "tokens, options") for place in ("math:pi",)),
    *((f"steps={number}", "steps") for number in (10**26, "9" * 400, "9" * 5000, "1e26")),
    *((f"{key}={number}", key) for key, number in NUMBERS.items()),
]
"""What is typed, and what the refusal names."""


@pytest.mark.parametrize(("word", "said"), SETTINGS, ids=lambda text: ascii(text)[:40])
def test_a_setting_that_no_run_means(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *DRY, word)


def test_a_board_is_saved_where_a_file_can_be_made(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    for place in (tmp_path / "folder.html", tmp_path / "file" / "x.html", "/proc/x.html", "/dev/null/x.html"):
        assert str(place) in refused(capsys, "board", run, "--save", place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html", "run"]


def test_a_dry_run_refuses_the_folder_that_a_run_would(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for word in (
        f"run.dir={run}",
        "run.dir=/proc/x",
        "resume=/nowhere",
        f"resume={run}",
        f"run.dir={tmp_path / 'file' / 'x'}",
    ):
        assert console.main([*DRY, word]) == 2
        shown = capsys.readouterr()
        assert "# Placement" in shown.out and shown.err.count("\n") == 1, "the plan first, then why it would not start"


def questions(path: Path, *rows: str) -> Path:
    path.write_text("".join(row + "\n" for row in rows))
    return path


GOOD = '{"id": "a", "question": "who ?", "golden_answers": ["b"]}'


@pytest.mark.parametrize(
    "row",
    [
        '{"id": "a", "question": "who ?", "golden_answers": ["b"], "golden_answers": ["c"]}',
        '{"id": "a", "id": "a", "question": "who ?", "answer": "b"}',
        '{"question": "who ?", "reward_model": {"ground_truth": {"target": ["b"], "target": ["c"]}}}',
        '{"question": "who ?", "answer": "b", "\\u0061nswer": "c"}',
    ],
)
def test_a_key_that_stands_there_twice_is_refused(row: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: the key .* twice"):
        read_questions(questions(tmp_path / "q.jsonl", GOOD, row))


def test_a_corpus_key_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    good = '{"id": "1", "contents": "he said \\"id\\" and \\"contents\\": \\"text\\""}'
    twice = '{"id": "2", "contents": "one", "contents": "two"}'
    assert len(list(stream_corpus(questions(tmp_path / "good.jsonl", good)))) == 1
    path = questions(tmp_path / "c.jsonl", good, twice)
    for read in (read_corpus, lambda path: list(stream_corpus(path))):
        with pytest.raises(InputError, match="line 2: the key .*contents.* twice"):
            read(path)
