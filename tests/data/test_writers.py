"""What is written is what is read back, in every format; and it has the documented layout."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ssp.base.episode import SOLVER
from ssp.base.errors import InputError
from ssp.data.readers import Question, Target, asked, read_questions, read_targets
from ssp.data.writers import write_flashrag, write_plain, write_search_r1, write_ssp
from ssp.game import protocols
from ssp.game.judge import normalise
from ssp.game.protocols import training_prompt

NQ = [Question(f"nq/test/{i}", f"who {i}?", (f"x{i}", "y z"), 0, "nq", "test") for i in range(3)]
HOTPOT = [Question(f"hotpotqa/dev/{i}", f"where {i}?", (f"x{i}",), 0, "hotpotqa", "dev") for i in range(2)]
TARGETS = [Target("0", "vure", 2, "Question 1: who?\nQuestion 2: where?"), Target("1", "東京")]

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).map(str.strip).filter(bool)
bare = texts.filter(
    lambda text: normalise(text) and not set(text) & set("|[({<#\\")
)  # no list, no separator, no pattern
golds = st.lists(bare, min_size=1, max_size=3).map(tuple)
names = st.sampled_from(["nq", "hotpotqa", "a/b"])


@st.composite
def question_lists(draw):
    rows = draw(st.lists(st.tuples(texts, golds, names, names, st.integers(0, 9)), min_size=1, max_size=4))
    return [Question(f"{s}/{p}/{i}", text, answers, hops, s, p) for i, (text, answers, s, p, hops) in enumerate(rows)]


@pytest.mark.covers("SR-60", "SR-61")
def test_search_r1_parquet_has_the_five_columns_and_their_types(tmp_path):
    path = tmp_path / "new" / "train.parquet"
    write_search_r1(path, NQ + HOTPOT, training_prompt())
    text = pa.string()
    wanted = {
        "data_source": text,
        "prompt": pa.list_(pa.struct({"role": text, "content": text})),
        "ability": text,
        "reward_model": pa.struct({"style": text, "ground_truth": pa.struct({"target": pa.list_(text)})}),
        "extra_info": pa.struct({"split": text, "index": pa.int64()}),
    }
    table = pq.read_table(path)
    assert {field.name: field.type for field in table.schema} == wanted
    (message,) = protocols.get("search-r1").messages(SOLVER, {"question": "who 1?"})
    assert table.to_pylist()[1] == {
        "data_source": "nq",
        "prompt": [message],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": ["x1", "y z"]}},
        "extra_info": {"split": "test", "index": 1},
    }
    assert read_questions(path) == NQ + HOTPOT  # whose ids stay apart though the index begins anew with each source
    assert [row["extra_info"]["index"] for row in table.to_pylist()] == [0, 1, 2, 0, 1]
    assert [p.name for p in path.parent.iterdir()] == ["train.parquet"]


def scored(text: str, golds: list[str]) -> float:
    """Search-R1's reward, written from its rule: the last `<answer>` of prompt and response, of which there must be two."""
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return float(len(found) > 1 and normalise(found[-1]) in map(normalise, golds))


@pytest.mark.covers("SR-30", "SR-33")
def test_a_right_answer_to_a_row_is_scored_by_search_r1(tmp_path):
    write_search_r1(tmp_path / "q.parquet", NQ, training_prompt())
    for row in pq.read_table(tmp_path / "q.parquet").to_pylist():
        (message,), golds = row["prompt"], row["reward_model"]["ground_truth"]["target"]
        said = message["content"]
        assert scored(f"{said}<think> so </think> <answer> {golds[-1]} </answer>", golds) == 1.0
        assert scored(f"{said}<think> so </think> <answer> else </answer>", golds) == scored(said, golds) == 0.0
        assert all(tag in said for tag in ("<think>", "<search>", "<information>")), "its trainer adds no instructions"
    assert scored("Question: who?<answer> x1 </answer>", ["x1"]) == 0.0, "which no example stands before"
    assert {row["data_source"] for row in pq.read_table(tmp_path / "q.parquet").to_pylist()} <= {"nq", "hotpotqa"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question_lists())
def test_jsonl_formats_read_back(tmp_path, questions):
    for write, name in ((write_flashrag, "f.jsonl"), (write_plain, "p.jsonl.gz")):
        write(tmp_path / name, questions)
        assert read_questions(tmp_path / name) == questions


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question_lists())
def test_search_r1_reads_back_or_is_refused(tmp_path, questions):
    if any(asked(training_prompt().replace("{question}", q.question)) != q.question for q in questions):
        with pytest.raises(InputError, match="the question follows"):
            write_search_r1(tmp_path / "no.jsonl", questions, training_prompt())
        return
    for name in ("q.parquet", "q.jsonl"):
        write_search_r1(tmp_path / name, questions, training_prompt())
        read = read_questions(tmp_path / name)
        assert [replace(q, id="", hops=0) for q in questions] == [replace(q, id="") for q in read]
        write_search_r1(tmp_path / "again.jsonl", read, training_prompt())
        assert read_questions(tmp_path / "again.jsonl") == read


@pytest.mark.parametrize(
    "change, said",
    [
        *[({"question": text}, "nq/test/0") for text in ("Question: who?", "In a Question: who", "x Question:")],
        *[({"answers": golds}, "nq/test/0") for golds in ((), ("The",), ("x", "?"))],
        *[({lack: ""}, "--source and --split") for lack in ("source", "split")],
    ],
)
def test_search_r1_refuses_what_would_read_as_another_row(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        write_search_r1(tmp_path / "q.parquet", [replace(NQ[0], **change)], training_prompt())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.parquet"])
@pytest.mark.covers("SR-63", "SP-08")
def test_ssp_rows(tmp_path, name):
    path = tmp_path / name
    write_ssp(path, TARGETS)
    assert read_targets(path) == TARGETS


@pytest.mark.parametrize("write", [write_flashrag, write_plain, lambda *to: write_search_r1(*to, training_prompt())])
def test_a_rubric_is_written_where_there_is_one(tmp_path, write):
    questions = [replace(NQ[0], rubric="names the year"), NQ[1]]
    write(tmp_path / "q.jsonl", questions)
    assert read_questions(tmp_path / "q.jsonl") == questions


def test_a_write_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        write_plain(tmp_path / "folder.jsonl", NQ)
    with pytest.raises(AttributeError):
        write_plain(tmp_path / "q.jsonl", [*NQ, None])
    assert [path.name for path in tmp_path.iterdir()] == ["folder.jsonl"]
