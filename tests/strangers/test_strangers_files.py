"""A user of Search-R1 brings published files as they are, and types what the page about data says: from files to scores."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from launch.main import main as console
from ssp.base.errors import InputError
from ssp.data import forms
from ssp.data.readers import read_questions

ROOT = Path(__file__).parents[2]
INPUTS = Path(__file__).parent / "inputs"
TINY = [
    *(
        "defaults.engine.kind=torch",
        "defaults.engine.dtype=float32",
        "defaults.engine.tensor_parallel=1",
        "defaults.engine.memory=0.85",
    ),
    *("defaults.limits.turn_tokens=24", "defaults.limits.searches=1", "solver.template=plain", "retriever.gpus=0"),
    *("defaults.limits.prompt_tokens=2048", "defaults.limits.total_tokens=2816"),
]
"""The recipe as a CPU plays it."""


def typed() -> list[list[str]]:
    """The words of each command that the page shows to that user."""
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    (block,) = [text for text in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "musique.jsonl" in text]
    return [shlex.split(line) for line in block.splitlines()]


def made(folder: Path) -> None:
    """Small files in the published forms, under the names that the page uses, and a model that reads every letter."""
    golds, search = INPUTS / "golds", INPUTS / "search"
    (folder / "musique.jsonl").write_bytes((golds / "musique_ans_dev.jsonl").read_bytes())
    for name in ("popQA.tsv", "browsecomp_plus.jsonl"):
        (folder / name).write_bytes((golds / name).read_bytes())
    (folder / "beir").mkdir()
    (folder / "beir" / "corpus.jsonl").write_bytes((search / "beir.jsonl").read_bytes())
    shards = folder / "browsecomp-plus-corpus" / "data"
    shards.mkdir(parents=True)
    for part, text in enumerate(("The Oru River flows through Talvik.", "Zeel is a cheese from Belu.")):
        row = {"docid": str(part), "text": text, "url": "u"}
        pq.write_table(pa.Table.from_pylist([row]), shards / f"train-{part:05d}-of-00002.parquet")
    page = (ROOT / "docs" / "own.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"cat > my_model.py <<'END'\n(.*?)END", page, re.DOTALL)
    exec(program, {})


@pytest.mark.slow
def test_from_published_files_to_scores_by_the_commands_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path)
    commands = typed()
    assert [words[1] for words in commands] == ["data", "index", "eval", "index", "eval"]
    for number, words in enumerate(commands):
        given = [word.replace("MODEL", "my-model") for word in words[1:]]
        if given[0] == "eval":
            given += ["--out", f"rows-{number}.jsonl", *TINY, *(["--method", "rag"] if number == 4 else [])]
        assert console(given) == 0, (given, capsys.readouterr().err)
    capsys.readouterr()
    asked = [(q.id, q.answers) for q in read_questions("multi.parquet")]
    assert asked == [
        ("musique/test/0", ("Norrmark county", "Norrmark", "Norrmarks fylke")),
        ("popqa/test/0", ("politician", "political leader", "polit.")),
    ]
    rows: list[list[dict[str, Any]]] = []
    for number in (2, 4):
        lines = (tmp_path / f"rows-{number}.jsonl").read_text(encoding="utf-8").splitlines()
        rows.append([json.loads(line) for line in lines])
    assert [[row["cause"] for row in part] for part in rows] == [["", ""], [""]]
    assert rows[1][0]["golden_answers"] == ["Talvik"] and rows[1][0]["searches"] == 1
    assert console(["eval", "--predictions", "rows-4.jsonl"]) == 0


def test_the_forms_that_are_read_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert console(["data", "forms"]) == 0
    said = capsys.readouterr().out
    for form in (*forms.QUESTIONS, *forms.CORPORA, *forms.PREDICTIONS):
        (line,) = [line for line in said.splitlines() if f": {form.name}: " in line and form.known[0] in line]
        assert all(path in line for path in form.known)
    assert all(name in said for name in forms.ASKED)


QUESTIONS: dict[str, dict[str, Any]] = {
    "PopQA": {"subj": "a", "obj": "b", "question": "who?", "possible_answers": '["x", "y"]', "o_aliases": "z"},
    "TriviaQA": {"question_id": "7", "question": "who?", "answer": {"value": "x", "aliases": ["y", "x"], "type": "t"}},
    "TriviaQA's own JSON": {"QuestionId": "7", "Question": "who?", "Answer": {"Value": "x", "Aliases": ["y"]}},
    "SQuAD": {"question": "who?", "answers": {"text": ["x", "y"], "answer_start": [0, 3]}},
    "SQuAD's own JSON": {"question": "who?", "answers": [{"text": "x"}, {"text": "y"}]},
    "KILT": {"input": "who?", "output": [{"answer": "x"}, {"provenance": []}, {"answer": "y"}], "meta": {}},
    "GAIA": {"task_id": "7", "Question": "who?", "Final answer": ["x", "y"], "Level": 2},
    "FRAMES, Bamboogle": {"Prompt": "who?", "Answer": ["x", "y"], "wiki_links": "l"},
    "SimpleQA": {"metadata": "{}", "problem": "who?", "answer": ["x", "y"]},
    "regular expressions": {"question": "who?", "answer_patterns": ["x|y"]},
}


@pytest.mark.parametrize("form", forms.QUESTIONS, ids=lambda form: form.name)
def test_every_form_of_questions_is_read(tmp_path: Path, form: forms.RowForm) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps(QUESTIONS[form.name]) + "\n", encoding="utf-8")
    (question,) = read_questions(tmp_path / "q.jsonl")
    assert (question.question, question.answers) == ("who?", ("x", "y"))
    assert question.id == ("7" if "id" in form.takes else "0")


@pytest.mark.parametrize(
    "row", [{"question": "who?", "answer": "x", "Answer": "y"}, {**QUESTIONS["PopQA"], "answers": ["z"]}]
)
def test_a_column_of_ours_beside_one_of_a_form_is_asked_about(tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no column answer"):
        read_questions(tmp_path / "q.jsonl")


NESTED = [
    {"version": "v2.0", "data": [{"title": "T", "paragraphs": [{"context": "c", "qas": [QUESTIONS["SQuAD's own JSON"]]}]}]},
    {"Version": 1.0, "Data": [QUESTIONS["TriviaQA's own JSON"]]},
]  # fmt: skip


@pytest.mark.parametrize("value", NESTED, ids=["SQuAD", "TriviaQA"])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_object_that_holds_the_rows_is_read(tmp_path: Path, value: dict[str, Any], indent: int | None) -> None:
    (tmp_path / "q.json").write_text(json.dumps(value, indent=indent), encoding="utf-8")
    (question,) = read_questions(tmp_path / "q.json")
    assert (question.question, question.answers) == ("who?", ("x", "y"))
