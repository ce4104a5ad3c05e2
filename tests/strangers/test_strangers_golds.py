"""Question, target and prediction files in the forms that others' tools write: read right, or refused by a rule, with a
next step that works."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from launch.main import main as console
from ssp.base.errors import InputError
from ssp.data.patterns import spellings
from ssp.data.readers import Question, Target, read_corpus, read_questions, read_targets
from ssp.game.evaluation import predictions

INPUTS = Path(__file__).parent / "inputs" / "golds"

ONE = "a text is one right answer"
NAMED = "a row has its right answers in"
PROMPT = "without a question column"
EMPTY = "a question has a right answer"
LIKE = "a column that is named like right answers"


def put(folder: Path, *rows: dict[str, Any], name: str = "q.jsonl") -> Path:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / name


def refused(rule: str, act: Callable[[], object], *found: str) -> InputError:
    """What is refused, by `rule`, with what was `found`, and with something to do."""
    with pytest.raises(InputError) as caught:
        act()
    assert rule in caught.value.rule
    assert all(words in str(caught.value.found) for words in found), caught.value.found
    assert caught.value.next_step
    return caught.value


READ = {
    "verl_gt_json_string.jsonl": [("nq/train/0", "who wrote the song of oru?", ("Kel Vask", "Vask"))],
    "verl_target_pystring.jsonl": [("nq/train/0", "who wrote the song of oru?", ("Kel Vask", "Vask"))],
    "popqa_renamed_answer.jsonl": [
        ("1000001", "What is Oru Kel's occupation?", ("politician", "political leader", "polit."))
    ],
    "musique_ans_dev.jsonl": [
        (
            "2hop__101_202",
            "In which county is the town that the Oru River flows through?",
            ("Norrmark county", "Norrmark", "Norrmarks fylke"),
        )
    ],
    "mmsearch_candidates.jsonl": [("infoseek/0", "which town?", ("Talvik", "Talvik town"))],
    "asearcher.jsonl": [("a1", "Which town?", ("Talvik", "Talvik town"))],
    "prompt_answer_tail.jsonl": [("nq/train/0", "who wrote the song of oru?", ("Kel Vask",))],
    "answers_dict_vals.jsonl": [("0", "which?", ("Talvik",))],
    "squad_hf.jsonl": [("1", "which town?", ("Talvik", "Talvik town"))],
    "triviaqa_hf.jsonl": [("tc_x1", "Which town lies on the Oru?", ("Talvik", "The Talvik", "Talvik town"))],
    "gaia.jsonl": [("x1", "Which town?", ("Talvik",))],
    "bamboogle_hf.jsonl": [("0", "Which town?", ("Talvik",))],
    "popqa_hf.jsonl": [("1000001", "What is Oru Kel's occupation?", ("politician", "political leader", "polit."))],
    "popQA.tsv": [("1000001", "What is Oru Kel's occupation?", ("politician", "political leader", "polit."))],
    "simpleqa.csv": [("0", "Who got the Oru prize in 2010?", ("Kel Vask",))],
    "browsecomp_plus.jsonl": [("769", "Which town?", ("Talvik",))],
    "dpr_biencoder.json": [("0", "which town?", ("Talvik",))],
    "pandas_columns.json": [("0", "a town?", ("Talvik",))],
    "hotpot_dev_distractor_v1.json": [
        (
            "aaaa0000bbbb1111cccc2220",
            "In which county is the town that the Oru River flows through?",
            ("Norrmark",),
        ),
        ("aaaa0000bbbb1111cccc2221", "Are Oru and Bek both rivers?", ("yes",)),
    ],
    "prompt_rag_context.jsonl": [("nq/train/0", "who wrote the song of oru?", ("Kel Vask",))],
    "hotpot_jq.jsonl": [
        (
            "aaaa0000bbbb1111cccc2220",
            "In which county is the town that the Oru River flows through?",
            ("Norrmark",),
        ),
        ("aaaa0000bbbb1111cccc2221", "Are Oru and Bek both rivers?", ("yes",)),
    ],
}
"""Files → the id, question and answers of each row."""

REFUSED = {
    "answer_pipes.jsonl": (ONE, "Talvik || Belu"),
    "curatedtrec.jsonl": (ONE, "Talvik|Talvik"),
    "musique_full_distinct.jsonl": (EMPTY, "answerable=false"),
    "golden_with_blank.jsonl": (EMPTY, '""'),
    "golden_empty_list.jsonl": (EMPTY, "[]"),
    "prompt_q_inside.jsonl": (PROMPT, "in the quiz show Question: Time"),
    "verl_deepresearcher.jsonl": (PROMPT, "who wrote the song of oru?"),
    "nq_simplified.jsonl": (NAMED, "annotations"),
    "ssp_source_split.jsonl": (NAMED, "ground_truth"),
}
"""Files → the rule that refuses them, and what is shown of them."""


@pytest.mark.parametrize("name", READ)
def test_a_form_is_read(name: str) -> None:
    assert [(q.id, q.question, q.answers) for q in read_questions(INPUTS / name)] == READ[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_is_refused(name: str) -> None:
    rule, *found = REFUSED[name]
    refused(rule, lambda: read_questions(INPUTS / name), *found)


SEVERAL = [
    ("Talvik<|answer_split|>Belu", ("Talvik", "Belu")),
    ("Talvik <|answer_split|> Belu <|answer_split|> Oru", ("Talvik", "Belu", "Oru")),
    ('["Talvik", "Belu"]', ("Talvik", "Belu")),
    (' [ "Talvik" ] ', ("Talvik",)),
    ('["4"]', ("4",)),
    ("['Talvik', \"O'Bek\"]", ("Talvik", "O'Bek")),
    ("('Talvik', 'Belu')", ("Talvik", "Belu")),
    ('{"target": ["Talvik", "Belu"]}', ("Talvik", "Belu")),
    ("{'target': 'Talvik'}", ("Talvik",)),
    ('["Talvik<|answer_split|>Belu"]', ("Talvik", "Belu")),
]
"""Texts of which a form says that they are several answers, and which."""

SINGLE = [
    *("[4,\\infty)", "(4, 5]", "(1, 2)", "[0,1] \\cup [2,3]", "\\{1, 2\\}", "\\frac{1}{2}", "\\sqrt{2}", "\\sin x"),
    *("|x|", "||v||", "2|x-1|", "P(A|B)", "\\{x | x > 0\\}", "x^2", "5*3", "\\Delta", "\\boxed{4}"),
    *("[sic]", "[[Talvik]]", "AC/DC", "Talvik; or, Virtue", "Talvik, Norrmark", "Yes (What?)", "Who? Weekly", "C#"),
    *("('Til Tuesday)", '("Heroes")', '"Weird Al" Vask', "What's Up, Doc?", "A.I.", "St. Talvik", "a <b> c", "3.5"),
    *("$5", "Se7en", "東京", "Ψ", "1,000", "塔尔·维克", "Oru: Bek", "12:30", "(Not So) Oru", "Oru?"),
]
"""Texts that are one answer."""

UNCLEAR = [
    *("Talvik || Belu", "Talvik||Belu", "Talvik | Belu", "Talvik|Belu", "(Town|City) of Oru", "4 | 5"),
    *("Talvik<sep>Belu", "Talvik [SEP] Belu", "Talvik<|sep|>Belu", "Talvik###Belu", "so 2 + 2 = 4 #### 4"),
    *("['Talvik' 'Belu']", "['Talvik', 'Belu'", "[['Talvik'], ['Belu']]", "{'Talvik', 'Belu'}"),
    *('["Talvik", 4]', '{"text": ["Talvik"]}', "{'target': array(['Talvik'], dtype=object)}"),
    *("Talvik\\s?(Town|City)", "\\d{4}", "New\\sYork", "(Lake )?Oru\\s", "(?i)talvik", "Talvik.*", "[A-Z]alvik"),
    *(
        "Talvik( City)?",
        "^Talvik$",
        "Norr(mark)?",
        "Norr(mark|land)",
        "187(4|5)",
        "A|B",
        "Talvik ||| Belu",
        "Talvik<br>Belu",
        "Talvik && Belu",
        "Talvik@@Belu",
    ),
    '"[\\"Talvik\\"]"',
]
"""Texts that may be several answers, or patterns of them, without a form that says which: also in a list."""

ALONE = ["[4, 5]", "[Talvik, Belu]", "{Talvik,Belu}", "array(['Talvik'], dtype=object)", "Talvik\nBelu", "Talvik\tBelu"]
ALONE += ["塔尔维克；贝卢", "塔尔维克、贝卢", "Talvik ｜ Belu", "Talvik::Belu", "Talvik :: Belu"]
"""Texts that may be several answers, but in a list are one."""


def verl(truth: object) -> dict[str, Any]:
    return {"question": "who?", "reward_model": {"style": "rule", "ground_truth": truth}}


PLACES: dict[str, Callable[[object], dict[str, Any]]] = {
    "answer": lambda gold: {"question": "who?", "answer": gold},
    "ground_truth": verl,
    "target": lambda gold: verl({"target": gold}),
}
ROWS = {**PLACES, "golden_answers": lambda gold: {"question": "who?", "golden_answers": gold}}


@pytest.mark.parametrize("place", ROWS)
@pytest.mark.parametrize(("text", "golds"), SEVERAL)
def test_a_text_of_several_answers_is_split(tmp_path: Path, place: str, text: str, golds: tuple[str, ...]) -> None:
    for value in (text, [text]):
        assert [q.answers for q in read_questions(put(tmp_path, ROWS[place](value)))] == [golds]
    (rows,) = predictions.read([put(tmp_path, {"golden_answers": text, "pred": golds[-1]})], {}).values()
    assert rows[0].golden_answers == list(golds) and rows[0].em == 1


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", SINGLE)
def test_a_text_of_one_answer_stays_one(tmp_path: Path, place: str, text: str) -> None:
    for value in (text, [text]):
        assert [q.answers for q in read_questions(put(tmp_path, PLACES[place](value)))] == [(text,)]


@pytest.mark.parametrize("text", UNCLEAR)
def test_a_text_that_may_be_several_answers_is_refused_wherever_golds_stand(tmp_path: Path, text: str) -> None:
    for place in PLACES.values():
        for value in (text, [text], ["Oru", text]):
            path = put(tmp_path, place(value))
            refused(ONE, lambda path=path: read_questions(path))
    source = {"ground_truth": text, "search_turns": "2", "sys_question_example": ""}
    for row in (source, verl({"target": text}), verl({"target": [text]})):
        refused(ONE, lambda row=row: read_targets(put(tmp_path, row)))
    refused(ONE, lambda: predictions.read([put(tmp_path, {"golden_answers": [text], "pred": "x"})], {}))


@pytest.mark.parametrize("text", ALONE)
def test_a_list_says_that_a_text_is_one_answer(tmp_path: Path, text: str) -> None:
    for place in PLACES.values():
        path = put(tmp_path, place(text))
        refused(ONE, lambda path=path: read_questions(path))
        assert [q.answers for q in read_questions(put(tmp_path, place([text])))] == [(text,)]


@pytest.mark.parametrize(
    ("more", "golds"),
    [
        ({"answer_aliases": ["Oru", "Talvik"]}, ("Talvik", "Oru")),
        ({"answer_aliases": '["Oru"]'}, ("Talvik", "Oru")),
        ({"aug_answer": "Oru"}, ("Talvik", "Oru")),
        ({"metadata": {"answer_aliases": ["Oru"]}}, ("Talvik", "Oru")),
        ({"extra_info": {"answer_aliases": ["Oru"]}}, ("Talvik", "Oru")),
        ({"answer_aliases": [], "aug_answer": None, "possible_answers": "[]", "aliases": ""}, ("Talvik",)),
        ({"possible_answers": '["talvik"]', "num_answers": 1, "s_aliases": ["Bek"]}, ("Talvik",)),
        ({"answerable": True, "is_impossible": False}, ("Talvik",)),
        ({"pred_answers": ["Bek"], "incorrect_answers": ["Bek"]}, ("Talvik",)),
        ({"answers": ["Talvik", "Oru"]}, ("Talvik", "Oru")),
    ],
)
def test_further_right_answers_are_right(tmp_path: Path, more: dict[str, Any], golds: tuple[str, ...]) -> None:
    (question,) = read_questions(put(tmp_path, {"question": "who?", "answer": "Talvik", **more}))
    assert question.answers == golds


@pytest.mark.parametrize("column", ["candidate_answers", "possible_answers", "aliases", "other_answers", "answer_list"])
@pytest.mark.parametrize("value", [["Talvik", "Oru"], '["Oru"]', "Oru", {"text": ["Oru"]}])
def test_a_column_that_may_hold_further_right_answers_is_asked_about(
    tmp_path: Path, column: str, value: object
) -> None:
    row = {"question": "who?", "answer": "Talvik", column: value}
    assert "answer_aliases" in refused(LIKE, lambda: read_questions(put(tmp_path, row)), column).next_step


@pytest.mark.parametrize(
    "said", [{"answerable": False}, {"answerable": "no"}, {"is_impossible": True}, {"unanswerable": 1}]
)
@pytest.mark.parametrize("inside", ["", "metadata", "extra_info"])
def test_a_question_without_an_answer_is_refused_or_left_out(tmp_path: Path, said: dict[str, Any], inside: str) -> None:
    no = {"id": "n", "question": "who?", "answer": "Oru", **({inside: said} if inside else said)}
    path = put(tmp_path, no, {"id": "y", "question": "who?", "answer": "Talvik"})
    assert "--drop-empty" in refused(EMPTY, lambda: read_questions(path)).next_step
    dropped: list[str] = []
    assert [q.id for q in read_questions(path, dropped=dropped)] == ["y"]
    assert len(dropped) == 1 and "line 1" in dropped[0]


def test_the_advice_about_blank_answers_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", ["Talvik", ""]), ("b", []), ("c", [None]), ("d", "[]"), ("e", ["Oru"])]
    path = put(tmp_path, *[{"id": id, "question": "who?", "golden_answers": golds} for id, golds in rows])
    assert "--drop-empty" in refused(EMPTY, lambda: read_questions(path), "line 1").next_step
    out = tmp_path / "new.jsonl"
    assert console(["data", "convert", str(path), "--to", "plain", "--drop-empty", "--out", str(out)]) == 0
    assert [(q.id, q.answers) for q in read_questions(out)] == [("a", ("Talvik",)), ("e", ("Oru",))]
    said = capsys.readouterr().err
    assert all(f"line {number}:" in said for number in (1, 2, 3, 4))


@pytest.mark.parametrize("truth", ["Kel Vask<|answer_split|>Vask", '["Kel Vask", "Vask"]'])
def test_a_target_of_several_answers_is_refused_and_the_advice_works(
    tmp_path: Path, truth: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path, {"ground_truth": truth, "search_turns": "2", "sys_question_example": ""})
    refused("exactly one answer", lambda: read_targets(path), "Vask")
    out = tmp_path / "targets.jsonl"
    assert console(["data", "convert", str(path), "--to", "ssp", "--out", str(out)]) == 0
    assert read_targets(out) == [Target("0", "Kel Vask", 2)]
    assert "1 rows have several" in capsys.readouterr().err


def test_questions_as_targets_are_refused_and_the_advice_works(tmp_path: Path) -> None:
    path = put(tmp_path, {"question": "who?", "answers": ["Talvik", "Oru"]})
    assert "--to ssp" in refused("ground_truth", lambda: read_targets(path), "answers").next_step
    out = tmp_path / "targets.jsonl"
    assert console(["data", "convert", str(path), "--to", "ssp", "--out", str(out)]) == 0
    assert read_targets(out) == [Target("0", "Talvik")]


def prompted(text: str) -> dict[str, Any]:
    turns = [{"role": "user", "content": text}]
    return {"prompt": turns, "reward_model": {"ground_truth": {"target": ["Vask"]}}, "extra_info": {"index": 0}}


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Search. Question: who wrote it?\n", "who wrote it?"),
        ("Question: who wrote it", "who wrote it"),
        ("Question: who wrote Star Oru: Episode V?", "who wrote Star Oru: Episode V?"),
        ("Question: Is it St. Oru? And who wrote it?", "Is it St. Oru? And who wrote it?"),
        ("Context: x\nQuestion: who wrote it?", "who wrote it?"),
        ("Question: who wrote it?\nAnswer:", "who wrote it?"),
        ("Question: who wrote it?\n\nAnswer: Vask", "who wrote it?"),
        ("Question: who wrote it? Context: Doc 1 it\nVask wrote it\n", "who wrote it?"),
        ("Question: 谁写的？\nAnswer:", "谁写的？"),
    ],
)
def test_a_prompt_whose_form_says_where_the_question_ends(tmp_path: Path, text: str, question: str) -> None:
    assert [q.question for q in read_questions(put(tmp_path, prompted(text)))] == [question]


@pytest.mark.parametrize(
    "text",
    [
        "who wrote it?",
        "Question: ",
        "Question: \nAnswer:",
        "Question: who wrote it?\nThink first.",
        "Question: who wrote it? Think step by step and put the answer in tags.",
        "Question: who wrote it. Please answer with <answer> and </answer>.",
        "Question: Name the writer. Answer in one word",
        "Question: who wrote it Context: Vask wrote it",
        "Question: who wrote it?\nDocuments: Vask wrote it",
        "Question: who wrote it?\nOptions: A) Vask B) Oru",
        "Question: who wrote it? Output:",
        "Question: who wrote it?<|im_end|>",
        "Question: who wrote it? (answer in one word)",
        "Question: who?\nAnswer: Oru\n\nQuestion: who wrote it?\nAnswer:",
    ],
)
def test_a_prompt_where_other_text_may_stand_in_the_question(tmp_path: Path, text: str) -> None:
    rule = refused(PROMPT, lambda: read_questions(put(tmp_path, prompted(text)))).next_step
    assert "question" in rule


PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
PACKERS[".zst"] = lambda data: pa.compress(data, "zstd", asbytes=True)


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_is_read_and_one_of_another_ending_refused(tmp_path: Path, ending: str) -> None:
    question = {"question": "Où est Köln?", "answer": "Köln"}
    document = {"id": "1", "contents": '"Köln"\na city'}
    for row, read in ((question, read_questions), (document, read_corpus)):
        packed = PACKERS[ending](json.dumps(row).encode() + b"\n")
        path = tmp_path / f"rows.jsonl{ending}"
        path.write_bytes(packed)
        right = read(path)
        assert len(right) == 1
        for other in {*PACKERS} - {ending}:
            odd = tmp_path / f"odd.jsonl{other}"
            odd.write_bytes(packed)
            step = refused("by its ending", lambda read=read, odd=odd: read(odd), ending or "not packed").next_step
            subprocess.run(step, shell=True, check=True)
            assert read(tmp_path / f"odd.jsonl{ending}") == right


def test_a_parquet_file_of_another_ending_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([{"question": "who?", "answer": "x"}]), tmp_path / "q.jsonl")
    refused("by its ending", lambda: read_questions(tmp_path / "q.jsonl"), ".parquet")


def test_a_folder_is_refused_with_the_files_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, {"question": "who?", "answer": "x"}, name="mine.jsonl")
    refused("not a folder", lambda: read_questions(tmp_path), "mine.jsonl")
    words = ["eval", "--predictions", str(INPUTS / "musique.pred.jsonl"), "--data", str(tmp_path)]
    assert console(words) == 2 and "mine.jsonl" in capsys.readouterr().err


def test_an_array_is_read_however_long_its_line(tmp_path: Path) -> None:
    rows = [{"question": f"who {number}?", "answer": "x" * 40_000} for number in range(60)]
    (tmp_path / "q.jsonl").write_text(json.dumps(rows))
    assert [q.question for q in read_questions(tmp_path / "q.jsonl")] == [row["question"] for row in rows]


def test_a_pattern_of_answers_becomes_all_its_spellings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CuratedTREC's right answers are regular expressions: said by the name of their column, never guessed."""
    rows = [json.loads((INPUTS / "curatedtrec.jsonl").read_text())]
    rows += [{"id": "test_1", "question": "how far?", "golden_answers": ["\\d+ miles"]}]
    path, out = put(tmp_path, *rows), tmp_path / "out.jsonl"
    words = ["data", "convert", str(path), "--columns", "answer_patterns=golden_answers", "--to", "plain"]
    assert console([*words, "--out", str(out)]) == 2 and "--drop-empty" in capsys.readouterr().err
    assert console([*words, "--drop-empty", "--out", str(out)]) == 0
    assert "line 2" in capsys.readouterr().err
    (question,) = read_questions(out)
    assert question.answers == ("Talvik", "TalvikTown", "TalvikCity", "Talvik Town", "Talvik City")


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("Talvik", ["Talvik"]),
        ("Norr(mark|land)?", ["Norr", "Norrmark", "Norrland"]),
        ("187[4-6]", ["1874", "1875", "1876"]),
        ("^St\\.?\\s+Oru$", ["St Oru", "St. Oru"]),
        ("(July )?1\\s*,?\\s*1997", None),
        ("New\\sYork", ["New York"]),
        ("x{3}", ["xxx"]),
    ],
)
def test_the_spellings_of_a_pattern_are_those_that_it_matches(pattern: str, texts: list[str] | None) -> None:
    made = spellings(pattern)
    assert made == (texts or made) and all(re.fullmatch(pattern, text) for text in made)


@pytest.mark.parametrize("pattern", ["Talvik.*", "\\d{4}", "[^a]", "a+", "(a", "[a-z]{9}"])
def test_a_pattern_of_endless_spellings_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="spellings|regular"):
        spellings(pattern)


def test_columns_under_other_names_are_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next step of a refusal works: it names the columns; two that may be the question are asked about."""
    path, out = put(tmp_path, {"text": "who?", "label": "Talvik", "names": ["Oru"]}), tmp_path / "out.jsonl"
    assert "--columns" in refused(NAMED, lambda: read_questions(path), "label", "names").next_step
    words = ["data", "convert", str(path), "--to", "plain", "--out", str(out), "--columns"]
    assert console([*words, "question=text,answer=label,answer_aliases=names"]) == 0
    assert [(q.question, q.answers) for q in read_questions(out)] == [("who?", ("Talvik", "Oru"))]
    for wrong in ("question", "question=none"):
        assert console([*words[:-2], str(tmp_path / "no.jsonl"), "--columns", wrong]) == 2
    two = put(tmp_path, {"problem": "who?", "query": "what?", "answer": "x"})
    refused("a row has its question in", lambda: read_questions(two), "problem", "query")


def test_shards_and_numbered_parts_are_one_file(tmp_path: Path) -> None:
    rows = [{"question": f"who {number}?", "answer": "x"} for number in range(4)]
    (tmp_path / "data").mkdir()
    for part in range(2):
        table = pa.Table.from_pylist(rows[2 * part :][:2])
        pq.write_table(table, tmp_path / "data" / f"test-{part:05d}-of-00002.parquet")
    expected = [(str(number), f"who {number}?") for number in range(4)]
    assert [(q.id, q.question) for q in read_questions(tmp_path)] == expected
    assert [(q.id, q.question) for q in read_questions(tmp_path / "data" / "test-*.parquet")] == expected
    out = tmp_path / "out.jsonl"
    assert console(["data", "convert", str(tmp_path), "--to", "plain", "--out", str(out)]) == 0
    assert [q.id for q in read_questions(out)] == [f"{tmp_path.name}/test/{number}" for number in range(4)]
    (tmp_path / "data" / "test-00001-of-00002.parquet").unlink()
    refused("shards is whole", lambda: read_questions(tmp_path / "data"), "test-00001")


def test_a_table_with_a_cell_too_many_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question,answer\nwho, if any?,Talvik\n")
    refused("one cell a column", lambda: read_questions(tmp_path / "q.csv"), "line 2", "3 cells")
    (tmp_path / "q.csv").write_bytes("question,answer\nwho?,K\u00f6ln\n".encode("latin-1"))
    refused("UTF-8", lambda: read_questions(tmp_path / "q.csv"))


def files(folder: Path, *rows: list[dict[str, Any]]) -> list[str]:
    paths = []
    for number, each in enumerate(rows):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(each), path)
        paths.append(str(path))
    return paths


def recall(question: str, gold: str, **extra: object) -> dict[str, Any]:
    truth = {"style": "rule", "ground_truth": [gold]}
    return {"data_source": "musique", "question": question, "reward_model": truth, "extra_info": {"env": "x", **extra}}


def test_files_of_one_source_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the ids in their extra_info, where there are any; else the advice, `--source`, does it."""
    named = files(tmp_path, [recall("town?", "Talvik", id="train_0")], [recall("cheese?", "Zeel", id="dev_0")])
    out = tmp_path / "out.jsonl"
    assert console(["data", "convert", *named, "--to", "plain", "--out", str(out)]) == 0
    assert [q.id for q in read_questions(out)] == ["musique/train_0", "musique/dev_0"]
    same = files(tmp_path, [recall("town?", "Talvik", index=0)], [recall("cheese?", "Zeel", index=0)])
    out.unlink()
    capsys.readouterr()
    assert console(["data", "convert", *same, "--to", "plain", "--out", str(out)]) == 2
    assert "--source" in capsys.readouterr().err
    assert console(["data", "convert", *same, "--source", "a,b", "--to", "plain", "--out", str(out)]) == 0
    assert [(q.id, q.source) for q in read_questions(out)] == [("musique/a/0", "musique"), ("musique/b/0", "musique")]
    again = tmp_path / "again.jsonl"
    assert console(["data", "convert", str(out), "--to", "flashrag", "--out", str(again)]) == 0
    assert [q.id for q in read_questions(again)] == ["musique/a/0", "musique/b/0"]
    capsys.readouterr()
    twice = files(tmp_path, [recall("town?", "Talvik", index=0), recall("cheese?", "Zeel", index=0)])
    assert console(["data", "convert", *twice, "--to", "plain", "--out", str(tmp_path / "no.jsonl")]) == 2
    assert "--source" not in capsys.readouterr().err, "which changes nothing inside of one file"


SCORED = [
    ("musique.pred.jsonl", "musique_ans_dev.jsonl"),
    ("verl.pred.jsonl", "verl_target_pystring.jsonl"),
    ("verl.pred.jsonl", "verl_gt_json_string.jsonl"),
    ("gold_liststr.jsonl", ""),
]


@pytest.mark.parametrize(("given", "data"), SCORED)
def test_a_right_prediction_is_right(tmp_path: Path, given: str, data: str) -> None:
    words = ["--data", str(INPUTS / data)] if data else []
    table = tmp_path / "table.json"
    assert console(["eval", "--predictions", str(INPUTS / given), *words, "--summary", str(table)]) == 0
    (row,) = predictions.read([INPUTS / given], {"s": read_questions(INPUTS / data)} if data else {}).values()
    assert row[0].em == 1


def test_a_whole_response_is_no_prediction() -> None:
    refused("the answer alone", lambda: predictions.read([INPUTS / "tagged.jsonl"], {}), "<answer>")


def test_predictions_of_others_are_right(tmp_path: Path) -> None:
    run = {"query_id": "769", "status": "completed", "result": [{"type": "tool_call", "output": "x"}]}
    said = {"type": "output_text", "output": "Explanation: so.\nExact Answer: Talvik\nConfidence: 90%"}
    put(tmp_path, {**run, "result": [*run["result"], said]}, name="run_1.json")
    dumped = {"input": "Question: who?", "output": "<think>x</think><answer> Talvik </answer>", "score": 1.0, "step": 5}
    put(tmp_path, {**dumped, "gts": {"target": ["Talvik"]}}, {**dumped, "gts": "Talvik"}, name="5.jsonl")
    asked = {name: [Question(id, "who?", ("Talvik",))] for name, id in (("hotpot", "aaaa"), ("browse", "769"))}
    asked["musique"] = [Question("2hop__101_202", "who?", ("Norrmark",))]
    given: list[tuple[Path, str]] = [
        (INPUTS / "flashrag_intermediate_data.json", ""),
        (INPUTS / "r1searcher.jsonl", ""),
        (INPUTS / "hotpot_pred.json", "hotpot"),
        (INPUTS / "musique_pred.jsonl", "musique"),
        (tmp_path / "run_*.json", "browse"),
        (tmp_path / "5.jsonl", ""),
    ]
    for path, name in given:
        (rows,) = predictions.read([path], {name: asked[name]} if name else {}).values()
        assert rows and all(row.em == 1 for row in rows), path


@pytest.mark.parametrize("text", ["so \\boxed{Talvik}", "x</think>Talvik", "<answer>Talvik</answer>"])
def test_a_whole_response_is_no_prediction_but_our_own_rows_are(tmp_path: Path, text: str) -> None:
    row = {"id": "1", "golden_answers": ["Talvik"], "prediction": text}
    refused("the answer alone", lambda: predictions.read([put(tmp_path, row)], {}))
    assert predictions.read([put(tmp_path, {**row, "set": "s"})], {})["s"][0].prediction == text
