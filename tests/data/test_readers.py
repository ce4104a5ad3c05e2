"""Every format that is read, and every bad row that is refused."""

from __future__ import annotations

import gzip
import json

import pytest

from ssp.data.readers import Question, Target, read_corpus, read_eval, read_targets
from ssp.episode import Document
from ssp.errors import InputError

DOC = {"id": "d1", "contents": '"Pota"\npota a company .'}
SOURCE = {"sys_question_example": "Question 1: who?", "ground_truth": "vure", "search_turns": "2"}
PROCESSED = {
    "data_source": "quark_selfplay_en",
    "prompt": [{"role": "user", "content": "x"}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["vure"]}},
    "extra_info": {"index": 7, "split": "train"},
    "metadata": None,
}
EVAL = {"id": "q1", "question": "pota seat ?", "golden_answers": ["vure", "Vure"], "metadata": {"hops": 1}}


def put(tmp_path, *rows, name="rows.jsonl"):
    path = tmp_path / name
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    data = b"\n".join(lines) + b"\n"
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def refused(reader, path, *words):
    with pytest.raises(InputError) as caught:
        reader(path)
    for word in (str(path), *words):
        assert word in str(caught.value), str(caught.value)


def without(row, key):
    return {k: v for k, v in row.items() if k != key}


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_corpus_in_both_forms(tmp_path, name):
    first = b"\xef\xbb\xbf" + json.dumps(DOC).encode() + b"\r"
    path = put(tmp_path, first, b"", {"id": 2, "title": "Vure", "text": "a city ."}, name=name)
    assert read_corpus(path) == [Document("d1", DOC["contents"]), Document("2", '"Vure"\na city .')]
    assert (read_corpus(path)[1].title, read_corpus(path)[1].text) == ("Vure", "a city .")


def test_corpus_reports_progress(tmp_path):
    seen = []
    read_corpus(put(tmp_path, *[{"id": i, "contents": "x"} for i in range(20_001)]), seen.append)
    assert seen == [10_000, 20_000]


def test_targets_in_both_forms(tmp_path):
    assert read_targets(put(tmp_path, SOURCE, {**SOURCE, "search_turns": 3, "id": "t"})) == [
        Target("0", "vure", 2, "Question 1: who?"),
        Target("t", "vure", 3, "Question 1: who?"),
    ]
    plain = {"reward_model": {"ground_truth": {"target": "bino"}}}
    assert read_targets(put(tmp_path, PROCESSED, plain)) == [Target("7", "vure"), Target("1", "bino")]


def test_eval(tmp_path):
    rows = [EVAL, {**without(EVAL, "metadata"), "id": "q2"}, {**EVAL, "id": "q3", "metadata": {"level": "easy"}}]
    assert read_eval(put(tmp_path, *rows)) == [
        Question("q1", "pota seat ?", ("vure", "Vure"), 1),
        Question("q2", "pota seat ?", ("vure", "Vure"), 0),
        Question("q3", "pota seat ?", ("vure", "Vure"), 0),
    ]


READERS = [(read_corpus, DOC), (read_targets, SOURCE), (read_eval, EVAL)]


@pytest.mark.parametrize("reader, row", READERS)
def test_broken_files(tmp_path, reader, row):
    refused(reader, tmp_path / "missing.jsonl", "must exist")
    refused(reader, tmp_path, "readable")
    refused(reader, put(tmp_path, b""), "at least one row")
    refused(reader, put(tmp_path, row, b"", b'{"id": '), "line 3", "JSON")
    refused(reader, put(tmp_path, b"[1]"), "line 1", "JSON object")
    refused(reader, put(tmp_path, b"[" * 100_000), "line 1", "JSON")
    refused(reader, put(tmp_path, b"1" * 5000), "line 1", "JSON")
    refused(reader, put(tmp_path, row, b'{"id": "\xff"}'), "line 2", "UTF-8", "byte 8")
    bad = tmp_path / "not.jsonl.gz"
    bad.write_bytes(b"plain")
    refused(reader, bad, "readable")
    cut = put(tmp_path, row, name="cut.jsonl.gz")
    cut.write_bytes(cut.read_bytes()[:-12])
    refused(reader, cut, "readable")


@pytest.mark.parametrize("reader, row", READERS)
def test_every_missing_field_is_named(tmp_path, reader, row):
    for field in row:
        if field not in ("metadata",):
            refused(reader, put(tmp_path, without(row, field)), "line 1", f"field {field}", "not there")


@pytest.mark.parametrize("reader, row", [(read_corpus, DOC), (read_targets, {**SOURCE, "id": 5}), (read_eval, EVAL)])
def test_duplicate_ids(tmp_path, reader, row):
    refused(reader, put(tmp_path, row, {**row, "id": "other"}, row), "line 3", "field id", "also on line 1")
    refused(reader, put(tmp_path, {**row, "id": 1}, {**row, "id": "1"}), "line 2", "unique")


def test_duplicate_index_of_processed_targets(tmp_path):
    refused(read_targets, put(tmp_path, PROCESSED, PROCESSED), "line 2", "unique")


@pytest.mark.parametrize("value", ["", "  ", None, 3, ["vure"]])
def test_empty_or_wrong_target(tmp_path, value):
    refused(read_targets, put(tmp_path, SOURCE, {**SOURCE, "ground_truth": value}), "line 2", "ground_truth")


@pytest.mark.parametrize("value", ["", " ", [], [""], ["a", "b"], [3], None, {}])
def test_empty_or_wrong_processed_target(tmp_path, value):
    row = {"reward_model": {"ground_truth": {"target": value}}}
    refused(read_targets, put(tmp_path, row), "line 1", "reward_model.ground_truth.target")


@pytest.mark.parametrize(
    "row, field",
    [
        ({"reward_model": None}, "reward_model"),
        ({"reward_model": {}}, "reward_model.ground_truth"),
        ({"reward_model": {"ground_truth": {}}}, "reward_model.ground_truth.target"),
        ({**PROCESSED, "extra_info": 3}, "extra_info"),
        ({**PROCESSED, "extra_info": {"index": -1}}, "extra_info.index"),
        *[({**SOURCE, "search_turns": n}, "search_turns") for n in ("0", "two", 1.5, True, None, "9" * 6000)],
    ],
)
def test_bad_target_fields(tmp_path, row, field):
    refused(read_targets, put(tmp_path, row), "line 1", f"field {field}")


@pytest.mark.parametrize(
    "row, field",
    [
        ({**DOC, "contents": ""}, "contents"),
        ({**DOC, "contents": 1}, "contents"),
        ({**DOC, "contents": "\ud800"}, "contents"),
        ({**DOC, "id": None}, "id"),
        ({**DOC, "id": True}, "id"),
        ({"id": "a", "title": "T"}, "contents"),
        ({"id": "a", "text": "T"}, "title"),
        ({"id": "a", "title": "T", "text": ""}, "text"),
    ],
)
def test_bad_corpus_fields(tmp_path, row, field):
    refused(read_corpus, put(tmp_path, row), "line 1", f"field {field}")


@pytest.mark.parametrize(
    "row, field",
    [
        ({**EVAL, "question": " "}, "question"),
        ({**EVAL, "golden_answers": []}, "golden_answers"),
        ({**EVAL, "golden_answers": "vure"}, "golden_answers"),
        ({**EVAL, "golden_answers": ["", "a"]}, "golden_answers"),
        ({**EVAL, "metadata": []}, "metadata"),
        ({**EVAL, "metadata": {"hops": "many"}}, "metadata.hops"),
    ],
)
def test_bad_eval_fields(tmp_path, row, field):
    refused(read_eval, put(tmp_path, row), "line 1", f"field {field}")
