"""Every format that is read, and every bad row that is refused."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.data.readers import Question, Target, read_corpus, read_questions, read_targets
from ssp.data.rows import ROW_BYTES

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


def test_targets_in_both_forms(tmp_path):
    assert read_targets(put(tmp_path, SOURCE, {**SOURCE, "search_turns": 3, "id": "t"})) == [
        Target("0", "vure", 2, "Question 1: who?"),
        Target("t", "vure", 3, "Question 1: who?"),
    ]
    plain = {"reward_model": {"ground_truth": {"target": "bino"}}}
    assert read_targets(put(tmp_path, PROCESSED, plain)) == [Target("7", "vure"), Target("1", "bino")]


def test_rows_of_both_forms_are_read_from_parquet_too(tmp_path):
    """Where every row has every column, null where it was absent."""
    given = {"reward_model": {"ground_truth": {"target": "bino"}}}
    path = parquet(tmp_path, {**dict.fromkeys(given), **SOURCE}, {**dict.fromkeys(SOURCE), **given})
    assert [target.answer for target in read_targets(path)] == ["vure", "bino"]
    titled = {"id": "2", "title": "Vure", "text": "a city ."}
    path = parquet(tmp_path, {**dict.fromkeys(titled), **DOC}, {**dict.fromkeys(DOC), **titled})
    assert [document.contents for document in read_corpus(path)] == [DOC["contents"], '"Vure"\na city .']


def test_eval(tmp_path):
    rows = [EVAL, {**without(EVAL, "metadata"), "id": "q2"}, {**EVAL, "id": "q3", "metadata": {"level": "easy"}}]
    assert read_questions(put(tmp_path, *rows)) == [
        Question("q1", "pota seat ?", ("vure", "Vure"), 1),
        Question("q2", "pota seat ?", ("vure", "Vure"), 0),
        Question("q3", "pota seat ?", ("vure", "Vure"), 0),
    ]


def parquet(tmp_path, *rows, name="rows.parquet", schema=None):
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), tmp_path / name)
    return tmp_path / name


def search_r1(index, question, golds, source="nq", **more):
    """A row of the Search-R1 layout."""
    prompt = f"Answer it, as in <answer> Beijing </answer>. Question: {question}\n"
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": golds}},
        "extra_info": {"split": "train", "index": index},
        **more,
    }


@pytest.mark.covers("SR-60", "SR-61", "SR-62")
def test_search_r1_parquet_loads_as_it_is(tmp_path):
    """The five documented columns, and with the columns of the FlashRAG row that published files keep beside them."""
    rows = [search_r1(0, "who?", ["a b", "B"]), search_r1(0, "where?", ["c"], "hotpotqa")]
    assert read_questions(parquet(tmp_path, *rows)) == [
        Question("nq/train/0", "who?", ("a b", "B"), source="nq", split="train"),
        Question("hotpotqa/train/0", "where?", ("c",), source="hotpotqa", split="train"),
    ]
    wide = {"id": "train_0", "question": " who? ", "golden_answers": ["a b"], "metadata": {"type": "bridge"}}
    assert read_questions(parquet(tmp_path, *[{**wide, **row} for row in rows], {**rows[0], **wide, "id": "x"})) == [
        Question("nq/train/train_0", "who?", ("a b", "B"), source="nq", split="train"),
        Question("hotpotqa/train/train_0", "who?", ("c",), source="hotpotqa", split="train"),
        Question("nq/train/x", "who?", ("a b", "B"), source="nq", split="train"),
    ]


def test_ssp_evaluation_rows(tmp_path):
    """SSP's test.jsonl: the question in extra_info, or after the instruction in the last user message."""
    row = search_r1(3, "who?", ["x"], "searchR1_nq")
    row["prompt"].insert(0, {"role": "system", "content": "Question: no"})
    row["extra_info"] |= {"question": "who else?", "split": "test"}
    dummy = {**row, "extra_info": {"question": "dummy", "split": "test", "index": 4}}
    assert read_questions(put(tmp_path, row, dummy)) == [
        Question("searchR1_nq/test/3", "who else?", ("x",), source="searchR1_nq", split="test"),
        Question("searchR1_nq/test/4", "who?", ("x",), source="searchR1_nq", split="test"),
    ]


def test_plain_rows_and_other_places_of_the_answer(tmp_path):
    path = put(
        tmp_path,
        {"question": "who?", "answer": "x"},
        {"question": "who?", "answers": ["x", "b"], "hops": "2", "data_source": "mine", "split": "dev"},
        {"question": "who?", "golden_answers": ["b"], "reward_model": {"style": "rule", "ground_truth": None}},
        {"question": "who?", "reward_model": {"ground_truth": "c"}},
        {"question": "who?", "id": "other/test/q", "answer": ["d", "e"]},
        name="plain.jsonl.gz",
    )
    assert read_questions(path, "other", "test") == [
        Question("other/test/0", "who?", ("x",), 0, "other", "test"),
        Question("mine/dev/1", "who?", ("x", "b"), 2, "mine", "dev"),
        Question("other/test/2", "who?", ("b",), 0, "other", "test"),
        Question("other/test/3", "who?", ("c",), 0, "other", "test"),
        Question("other/test/q", "who?", ("d", "e"), 0, "other", "test"),
    ]


@pytest.mark.parametrize("gold", ["The", " a.", "!?", "an, the"])
def test_a_gold_that_normalises_to_nothing(tmp_path, gold):
    refused(
        read_questions,
        put(tmp_path, EVAL, {**EVAL, "id": "x", "golden_answers": ["ok", gold]}),
        "line 2",
        "golden_answers",
    )
    where = ("row 1", "field reward_model.ground_truth.target", "--drop-empty")
    refused(read_questions, parquet(tmp_path, search_r1(0, "q?", ["ok"]), search_r1(1, "q?", [gold])), *where)
    refused(read_targets, put(tmp_path, {**SOURCE, "ground_truth": gold}), "line 1", "field ground_truth")
    refused(read_targets, put(tmp_path, {"reward_model": {"ground_truth": {"target": [gold]}}}), "target")
    dropped = []
    path = put(tmp_path, {**EVAL, "golden_answers": ["", gold]}, {**EVAL, "id": "x", "golden_answers": [gold, "ok"]})
    assert [q.answers for q in read_questions(path, dropped=dropped)] == [("ok",)]
    assert [place.split(", ")[1][:6] for place in dropped] == ["line 1", "line 1", "line 2"]
    assert str(path) in dropped[0]


PROMPTS = ([{"role": "user", "content": "who?"}], [{"role": "system", "content": "Question: who?"}])
PROMPTS += ([{"role": "user", "content": None}], "Question: who?")


@pytest.mark.parametrize(
    "change, field",
    [
        *[({"prompt": prompt}, "prompt") for prompt in PROMPTS],
        ({"prompt": None}, "question"),
        *[({"question": question}, "question") for question in ("", 3, "x" * ROW_BYTES)],
        ({"reward_model": None}, "golden_answers"),
        ({"reward_model": {"style": "rule"}}, "reward_model.ground_truth"),
        ({"reward_model": {"style": "rule", "ground_truth": {"target": []}}}, "reward_model.ground_truth.target"),
        ({"reward_model": {"style": "rule", "ground_truth": {"target": [None]}}}, "reward_model.ground_truth.target"),
        ({"reward_model": {"style": "rule", "ground_truth": {"target": b"x"}}}, "reward_model.ground_truth.target"),
        ({"data_source": 3}, "data_source"),
        ({"extra_info": {"index": 1.5}}, "extra_info.index"),
    ],
)
def test_bad_columns_of_parquet_are_named(tmp_path, change, field):
    path = parquet(tmp_path, {**search_r1(0, "who?", ["x"]), **change})
    refused(read_questions, path, "row 0", f"field {field}")


READERS = [(read_corpus, DOC), (read_targets, SOURCE), (read_questions, EVAL)]


@pytest.mark.parametrize("reader, row", READERS)
def test_broken_files(tmp_path, reader, row):
    refused(reader, tmp_path / "missing.jsonl", "must exist")
    refused(reader, tmp_path, "readable")
    refused(reader, put(tmp_path, b""), "at least one row")
    refused(reader, put(tmp_path, row, b"", b'{"id": '), "line 3", "JSON")
    refused(reader, put(tmp_path, b"[1]"), "row 0", "JSON array")
    refused(reader, put(tmp_path, b"[" + json.dumps(row).encode()), "row 1", "whole")
    refused(reader, put(tmp_path, b"[" * 100_000), "row 0", "JSON")
    refused(reader, put(tmp_path, b"1" * 5000), "line 1", "JSON")
    refused(reader, put(tmp_path, row, b'{"id": "\xff"}'), "line 2", "UTF-8", "byte 8")
    refused(reader, put(tmp_path, row, b'{"id": "' + b"x" * ROW_BYTES + b'"}'), "line 2", "1,000,000 bytes")
    bad = tmp_path / "not.jsonl.gz"
    bad.write_bytes(b"plain")
    refused(reader, bad, "readable")
    cut = put(tmp_path, row, name="cut.jsonl.gz")
    cut.write_bytes(cut.read_bytes()[:-12])
    refused(reader, cut, "readable", "after line")
    zst = put(tmp_path, row, name="not.jsonl.zst")
    refused(reader, zst, "readable")
    for name in ("missing.parquet", "missing.jsonl.zst"):
        refused(reader, tmp_path / name, "must exist")
    refused(reader, put(tmp_path, row, name="not.parquet"), "readable parquet")


def test_broken_parquet(tmp_path):
    refused(read_questions, parquet(tmp_path, schema=pa.schema({"question": pa.string()})), "at least one row")
    rows = [search_r1(i, f"who {i}?" * 20, [str(i)]) for i in range(3000)]
    path = parquet(tmp_path, *rows)
    assert [q.id for q in read_questions(path)] == [f"nq/train/{i}" for i in range(3000)], "in many batches"
    path.write_bytes(path.read_bytes()[:500])
    refused(read_questions, path, "readable parquet")
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff"]).buffers())
    for column in (texts, pa.array([2**62] * 2, pa.timestamp("us"))):
        pq.write_table(pa.table({"question": column, "answer": ["x", "b"]}), path)
        refused(read_questions, path, "UTF-8 and dates in range", "after row 0")


@pytest.mark.parametrize("reader, row", READERS)
def test_every_missing_field_is_named(tmp_path, reader, row):
    optional = ("metadata", "search_turns", "sys_question_example")
    for field in row:
        if field not in optional and (field, reader) != ("id", read_questions):
            refused(reader, put(tmp_path, without(row, field)), "line 1", f"field {field}", "not there")


@pytest.mark.parametrize(
    "reader, row", [(read_corpus, DOC), (read_targets, {**SOURCE, "id": 5}), (read_questions, EVAL)]
)
def test_duplicate_ids(tmp_path, reader, row):
    refused(reader, put(tmp_path, row, {**row, "id": "other"}, row), "line 3", "field id", "also on", "line 1")
    refused(reader, put(tmp_path, {**row, "id": 1}, {**row, "id": "1"}), "line 2", "unique")
    refused(read_targets, put(tmp_path, PROCESSED, PROCESSED), "line 2", "unique")


BAD_TARGETS = [
    ({"reward_model": None}, "reward_model"),
    ({"reward_model": {}}, "reward_model.ground_truth"),
    ({"reward_model": {"ground_truth": {}}}, "reward_model.ground_truth.target"),
    ({**PROCESSED, "extra_info": 3}, "extra_info"),
    ({**PROCESSED, "extra_info": {"index": -1}}, "extra_info.index"),
    *[({**SOURCE, "search_turns": n}, "search_turns") for n in ("0", "two", 1.5, True, "9" * 6000)],
    *[({**SOURCE, "ground_truth": value}, "ground_truth") for value in ("", "  ", None, 3, ["vure"])],
    *[
        ({"reward_model": {"ground_truth": {"target": value}}}, "reward_model.ground_truth.target")
        for value in ("", " ", [], [""], ["a", "b"], [3], None, {})
    ],
]
BAD_DOCUMENTS = [
    *[({**DOC, "contents": value}, "contents") for value in (1, "\ud800")],
    *[({**DOC, "id": value}, "id") for value in (None, True)],
    ({"id": "a", "title": "T"}, "contents"),
    ({"id": "a", "text": "T", "name": "N"}, "title"),
    ({"id": "a", "title": "T", "text": 3}, "text"),
]
BAD_QUESTIONS = [
    ({**EVAL, "question": " "}, "question"),
    *[({**EVAL, "golden_answers": value}, "golden_answers") for value in ([], "vure", ["", "a"])],
    ({**EVAL, "metadata": []}, "metadata"),
    ({**EVAL, "metadata": {"hops": "many"}}, "metadata.hops"),
]


@pytest.mark.parametrize(
    "reader, bad", [(read_targets, BAD_TARGETS), (read_corpus, BAD_DOCUMENTS), (read_questions, BAD_QUESTIONS)]
)
def test_bad_fields(tmp_path, reader, bad):
    for row, field in bad:
        refused(reader, put(tmp_path, row), "line 1", f"field {field}")
