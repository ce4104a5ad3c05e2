"""Corpora, indexes and texts in the forms that others write and the scripts that they write in: searched right, or refused
by a rule, with a next step that works."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import httpx
import numpy as np
import pytest
from folders import DIM, Encode, corpus, dense

from launch import data
from launch import index as command
from ssp.base.errors import Fault, InputError
from ssp.base.words import says
from ssp.data import forms
from ssp.data.readers import read_corpus
from ssp.game import corpora, protocols
from ssp.game.evaluation.rows import found
from ssp.learning.warmup import traces, transcripts
from ssp.search.bm25 import build
from ssp.search.hits import Knobs
from ssp.search.index import store
from ssp.search.index.builder import IndexPlan, build_index
from ssp.search.source import HttpSearch
from ssp.selfplay.settings import load

INPUTS = Path(__file__).parent / "inputs" / "search"
TEXTS = ["The Oru River flows through Talvik.", "Zeel is a cheese from Belu.", "Kel Vask wrote three songs."]


def refused(rule: str, act: Callable[[], object], *said: str) -> InputError:
    """What is refused, by `rule`, naming what is `said` in what was found."""
    with pytest.raises(InputError) as caught:
        act()
    assert rule in caught.value.rule
    assert all(words in str(caught.value.found) for words in said), caught.value.found
    assert caught.value.next_step
    return caught.value


# ------------------------------------------------------------------------------------------------------------- corpora

TITLED = [(str(at), f'"T"\n{text}') for at, text in enumerate(TEXTS)]
PLAIN = [(str(at), text) for at, text in enumerate(TEXTS)]

READ = {
    "beir.jsonl": TITLED,
    "docid_title_text.jsonl": [(f"{at}#0", f'"T"\n{text}') for at, text in enumerate(TEXTS)],
    "medrag.jsonl": [(f"x_{at}", f"T. {text}") for at, text in enumerate(TEXTS)],
    "wiki.jsonl.xz": PLAIN[:1],
    "empty_text.jsonl": [("0", TEXTS[0]), ("1", "")],
    "no_title_text.jsonl": PLAIN,
    "hotpot_abstract.jsonl": [(id, f"{text} More.") for id, text in TITLED],
    "text_is_list.jsonl": PLAIN,
    "corpus_array.json": PLAIN,
    "psgs_w100.tsv": [(str(at), f'"T"\n{text}') for at, text in enumerate(TEXTS, 1)],
}
"""Files → the id and contents of each row."""

ROW = "a corpus row has id and contents"
NOT_READ = {
    "langchain.jsonl": (ROW, "field id", "page_content"),
    "openai_messages.jsonl": (ROW, "field id", "messages"),
    "sharegpt.jsonl": (ROW, "field id", "conversations"),
    "searchr1_text.jsonl": (ROW, "field id", "question", "response"),
    "dup_ids.jsonl": ("ids are unique", "line 1", "line 2"),
    ".": ("a data file is readable, not a folder", "beir.jsonl"),
}
"""Files → the rule, and what of the file is shown."""


@pytest.mark.parametrize("name", READ)
def test_a_corpus_of_another_form_is_read_and_indexed(name: str, tmp_path: Path) -> None:
    documents_read = read_corpus(INPUTS / name)
    assert [(document.id, document.contents) for document in documents_read] == READ[name]
    build_index(INPUTS / name, tmp_path / "index", IndexPlan())
    shard = store.open_shard(tmp_path / "index")
    assert shard.fetch(np.arange(shard.total)) == documents_read
    (hits,) = shard.search(["talvik"], None, 3, Knobs(), "bm25")
    assert hits.rows[0][0] == 0 and hits.rows[0][1] == -1


@pytest.mark.parametrize("name", NOT_READ)
def test_a_corpus_without_a_reader_is_refused_with_what_it_holds(name: str, tmp_path: Path) -> None:
    rule, *said = NOT_READ[name]
    refused(rule, lambda: build_index(INPUTS / name, tmp_path / "index", IndexPlan()), *said)
    if (INPUTS / name).is_file():
        refused(rule, lambda: read_corpus(INPUTS / name), *said)
    assert list(tmp_path.iterdir()) == []


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


FORMS = {
    "KILT": {"_id": "9", "wikipedia_id": "9", "wikipedia_title": "T", "text": ["Talvik.\n", "A town."], "anchors": []},
    "MS MARCO": {"pid": "9", "passage": "Talvik. A town.", "spans": "(0,8)"},
    "MS MARCO documents": {"docid": "9", "url": "u", "title": "T", "headings": "h", "body": "Talvik. A town."},
    "LangChain": {"id": "9", "page_content": "Talvik. A town.", "metadata": {}, "type": "Document"},
    "BrowseComp-Plus; text without a title": {"docid": "9", "text": "Talvik. A town.", "url": "u"},
}


@pytest.mark.parametrize("form", forms.CORPORA, ids=lambda form: form.name)
def test_every_form_of_the_table_is_read(tmp_path: Path, form: forms.RowForm) -> None:
    path = written(tmp_path / "c.jsonl", [FORMS[form.name]])
    titled = '"T"\n' if "title" in form.takes or form.name == "MS MARCO documents" else ""
    assert [(document.id, document.contents) for document in read_corpus(path)] == [("9", f"{titled}Talvik. A town.")]
    build_index(path, tmp_path / "index", IndexPlan())
    assert store.open_shard(tmp_path / "index").fetch(np.arange(1)) == read_corpus(path)


def test_a_collection_without_a_header_keeps_its_quotation_marks(tmp_path: Path) -> None:
    path = tmp_path / "collection.tsv"
    path.write_text('0\t"Talvik" is a town.\n1\t"Zeel, a cheese.\n', encoding="utf-8")
    assert [document.contents for document in read_corpus(path)] == ['"Talvik" is a town.', '"Zeel, a cheese.']


def test_a_column_that_may_be_the_title_is_asked_about(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", [{"id": "1", "text": "Talvik", "heading": "T"}])
    refused(ROW, lambda: read_corpus(path), "heading")


def test_a_folder_of_chunks_is_one_corpus(tmp_path: Path) -> None:
    rows = [{"id": str(at), "contents": text} for at, text in enumerate(TEXTS)]
    for at in range(3):
        written(tmp_path / "chunks" / f"part_{at}.jsonl", rows[at : at + 1])
    for number, named in enumerate((tmp_path / "chunks", tmp_path / "chunks" / "part_*.jsonl")):
        build_index(named, tmp_path / f"index{number}", IndexPlan())
        shard = store.open_shard(tmp_path / f"index{number}")
        assert [(document.id, document.contents) for document in shard.fetch(np.arange(3))] == PLAIN
    written(tmp_path / "chunks" / "part_2.jsonl", rows[:1])
    refused("ids are unique", lambda: build_index(tmp_path / "chunks", tmp_path / "no", IndexPlan()), "row")
    written(tmp_path / "chunks" / "other.jsonl", rows)
    step = refused("not a folder", lambda: build_index(tmp_path / "chunks", tmp_path / "no", IndexPlan())).next_step
    assert "pattern" in step


def test_empty_passages_are_skipped_and_counted_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [{"id": "0", "contents": ""}, {"id": "1", "title": "T", "text": " "}]
    path = written(tmp_path / "c.jsonl", [*rows, {"id": "2", "contents": TEXTS[0]}])
    assert command.main(["--corpus", str(path), "--out", str(tmp_path / "all")]) == 0
    assert store.read_manifest(tmp_path / "all").rows == 3
    capsys.readouterr()
    assert command.main(["--corpus", str(path), "--out", str(tmp_path / "some"), "--skip-empty"]) == 0
    assert "1 documents, 2 without text left out" in capsys.readouterr().out
    shard = store.open_shard(tmp_path / "some")
    assert (shard.total, shard.search(["talvik"], None, 1, Knobs(), "bm25")[0].rows.tolist()) == (1, [[0]])
    assert [document.id for document in shard.fetch(np.arange(1))] == ["2"]
    plan = dense(kind="dense", embedding=tmp_path / "x.npy", skip_empty=True)
    refused("vectors from elsewhere", lambda: build_index(path, tmp_path / "no", plan))


def test_stems_are_a_choice_of_an_index_and_stand_in_its_mark(tmp_path: Path) -> None:
    """A query is cut as the index was; a folder without the mark stays one of whole words."""
    path = INPUTS / "text_is_list.jsonl"
    plain, stems = ["--corpus", str(path), "--out", str(tmp_path / "a")], ["--stemmer", "porter", "--k1", "0.9"]
    assert command.main(plain) == 0
    assert command.main([*plain[:-1], str(tmp_path / "b"), *stems]) == 0
    found_rows = []
    for name in "ab":
        shard = store.open_shard(tmp_path / name)
        hits = shard.search(["a song about flowing rivers"], None, 3, Knobs(), "bm25")[0].rows[0].tolist()
        found_rows.append(sorted(row for row in hits if row >= 0))
    assert found_rows == [[1], [0, 1, 2]]
    names = [store.name_of(store.read_manifest(tmp_path / name)) for name in "ab"]
    assert "porter" not in names[0] and "porter" in names[1]
    body = json.loads((tmp_path / "b" / store.MANIFEST).read_text())
    assert body["tokeniser"].endswith("+porter")
    body["tokeniser"] = "words-and-pairs-1+porter"
    (tmp_path / "b" / store.MANIFEST).write_text(json.dumps(body | {"sha256": store.own_digest(body)}))
    assert "--stemmer porter" in refused("by one rule", lambda: store.open_shard(tmp_path / "b")).next_step
    refused("a stemmer is one of", lambda: IndexPlan(stemmer="klingon").check())
    refused("of the words of BM25", lambda: dense(kind="dense", stemmer="porter").check())


def test_an_empty_contents_hides_no_text(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"id": 1, "contents": "", "title": "T", "text": "Talvik"}) + "\n", encoding="utf-8")
    assert [document.contents for document in read_corpus(path)] == ['"T"\nTalvik']


@pytest.mark.parametrize("name", ["openai_messages.jsonl", "sharegpt.jsonl", "searchr1_text.jsonl"])
@pytest.mark.parametrize("protocol", ["search-r1", "chat-tools", "research"])
def test_transcripts_of_others_become_traces_in_every_protocol(tmp_path: Path, name: str, protocol: str) -> None:
    columns = json.loads((INPUTS / name).read_text(encoding="utf-8"))
    step = refused("a trace has fields, turns and results", lambda: traces.read(INPUTS / name), *columns).next_step
    assert "--to traces" in step
    out = tmp_path / "traces.jsonl"
    words = ["convert", str(INPUTS / name), "--to", "traces", "--protocol", protocol, "--out", str(out)]
    if protocol != "search-r1" and name != "openai_messages.jsonl":  # which are in Search-R1's tags
        refused("a turn searches or answers", lambda: data.main(words))
        return
    assert data.main(words) == 0
    (trace,) = traces.read(out)
    spoken = protocols.get(protocol)
    assert trace.fields == {"question": "which town?"}
    assert [spoken.queries(turn) for turn in trace.turns] == [("oru",), ()]
    assert spoken.final("solver", trace.turns[-1]) == "Talvik"
    (documents,) = trace.results
    title = "Oru" if name == "searchr1_text.jsonl" else ""
    assert [(document.title, document.text) for document in documents] == [(title, "x")]
    if name != "openai_messages.jsonl":
        assert "<think>a</think>" in trace.turns[0]


def test_a_result_in_the_protocols_own_tags_is_no_turn(tmp_path: Path) -> None:
    said = "<search> oru </search> <result>Doc 1(Title: Oru) x</result> <answer> \\boxed{Talvik} </answer>"
    path = written(tmp_path / "t.jsonl", [{"question": "which town?", "response": said}])
    (trace,) = transcripts.read([path], protocols.get("research"))
    assert trace["turns"] == ["<search> oru </search>", "<answer> \\boxed{Talvik} </answer>"]
    assert trace["results"] == [[{"id": "1", "contents": '"Oru"\nx'}]]


ASKED_FOR = {"role": "user", "content": "which town?"}
SEARCH = {"function": {"name": "search", "arguments": {"query": "oru"}}}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"text": "x"}, "a transcript has its turns in"),
        ({"messages": [ASKED_FOR]}, "the last turn answers"),
        ({"messages": [ASKED_FOR, ASKED_FOR]}, "one question"),
        ({"messages": [ASKED_FOR, {"role": "assistant", "tool_calls": [SEARCH]}]}, "the last turn answers"),
        ({"messages": [ASKED_FOR, {"role": "tool", "content": "x"}]}, "a result follows its search"),
        ({"messages": [ASKED_FOR, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "with a query"),
        (
            {"messages": [ASKED_FOR, *[{"role": "assistant", "tool_calls": [SEARCH]}] * 2]},
            "each search has its result",
        ),
        ({"question": "which?", "response": "<think>a</think> I do not know"}, "a turn searches or answers"),
        (
            {"messages": [ASKED_FOR, *[{"role": "assistant", "content": "Talvik"}] * 2]},
            "nothing follows the answer",
        ),
    ],
)
def test_a_transcript_that_play_would_not_have_is_refused(tmp_path: Path, row: dict[str, Any], rule: str) -> None:
    path = written(tmp_path / "t.jsonl", [row])
    refused(rule, lambda: transcripts.read([path], protocols.get("search-r1")), "line 1")


# --------------------------------------------------------------------------------------------------------------- words

PASSAGES = {
    "chinese": ["奥鲁河流经塔尔维克镇。", "泽尔是一种奶酪。", "维克是塔镇的尔。"],
    "japanese": ["オル川はタルヴィク市を流れる。", "ゼールはチーズの一種です。", "東京タワーは1958年に完成した。"],
    "thai": ["แม่น้ำโอรูไหลผ่านเมืองทัลวิก", "เซลเป็นชีสจากเบลู", "เขาแต่งเพลงสามเพลง"],
    "korean": ["오루강은 탈비크에서 흐른다.", "젤은 벨루의 치즈이다.", "그는 노래를 세 곡 썼다."],
    "latin": ["Talvik's mayor served 1990-1994.", "Zeel is a cheese.", "Kel Vask's songs, 1995–1999"],
}
ASKED = [
    ("chinese", "塔尔维克", 0), ("chinese", "奶酪", 1), ("chinese", "塔镇", 2), ("japanese", "タルヴィク", 0),
    ("japanese", "チーズ", 1), ("japanese", "東京", 2), ("japanese", "ﾁｰｽﾞ", 1), ("thai", "ทัลวิก", 0), ("thai", "ชีส", 1),
    ("korean", "탈비크", 0), ("korean", "치즈", 1), ("latin", "talvik", 0), ("latin", "1994", 0), ("latin", "1999", 2),
]  # fmt: skip


@pytest.mark.parametrize(("script", "query", "row"), ASKED)
def test_a_word_in_the_middle_of_a_text_is_found_in_every_script(script: str, query: str, row: int) -> None:
    assert build(PASSAGES[script]).search([query], 1).rows.tolist() == [[row]]


@pytest.mark.parametrize(("script", "answer", "row"), ASKED)
def test_a_word_in_the_middle_of_a_text_is_recalled_in_every_script(script: str, answer: str, row: int) -> None:
    said = [found([passage], [answer]) for passage in PASSAGES[script]]
    assert said == [place == row for place in range(3)]


@pytest.mark.parametrize(
    ("text", "answer", "said"),
    [
        ("He led Talvik's council.", "Talvik", True),
        ("(1990-1994)", "1994", True),
        ("the U.S. Senate", "US", True),
        ("10,000 men", "10000", True),
        ("Sao Paulo's mayor", "São Paulo", True),
        ("a 2.5 per cent rise", "5", False),
        ("in 19945", "1994", False),
        ("northern", "north", False),
        ("two lakes", "lake", False),
        ("在北京大学", "北京", True),
        ("東京の塔", "京都", False),
    ],
)
def test_whole_words_say_an_answer_whatever_stands_beside_them(text: str, answer: str, said: bool) -> None:
    assert found([text], [answer]) is said
    assert says(text, answer) is said


# ------------------------------------------------------------------------------------------------------- older indexes


def older(folder: Path) -> None:
    """The folder as a version before made it: its words cut by another rule."""
    body: dict[str, Any] = json.loads((folder / store.MANIFEST).read_text())
    body["tokeniser"] = "nfkc-casefold-1"
    (folder / store.MANIFEST).write_text(json.dumps(body | {"sha256": store.own_digest(body)}))


def test_words_of_an_older_rule_are_refused_and_the_command_shown_makes_them_anew(tmp_path: Path) -> None:
    build_index(INPUTS / "chinese.jsonl", tmp_path / "an index", IndexPlan(k1=0.9, b=0.4))
    older(tmp_path / "an index")
    error = refused("by one rule", lambda: store.open_shard(tmp_path / "an index"), "nfkc-casefold-1")
    shown = shlex.split(error.next_step.partition("ssp index ")[2])
    shown[shown.index("NEW")] = str(tmp_path / "new")
    assert command.main(shown) == 0
    shard = store.open_shard(tmp_path / "new")
    assert shard.search(["塔尔维克"], None, 1, Knobs(), "bm25")[0].rows.tolist() == [[0]]
    made = store.read_manifest(tmp_path / "new")
    assert (made.bm25, made.rows) == ((0.9, 0.4), 2)


@pytest.mark.parametrize(
    ("plan", "shown"),
    [
        ({}, "dense/vectors.npy"),
        ({"factory": "HNSW8"}, "--faiss-file"),
        ({"factory": "HNSW8", "save_embedding": True}, "dense/embedding.npy"),
        ({"factory": "HNSW8", "parts": 2}, "--parts 2"),
    ],
)
def test_vectors_are_taken_over_from_an_older_folder(tmp_path: Path, plan: dict[str, Any], shown: str) -> None:
    build_index(corpus(tmp_path / "c.jsonl", 40), tmp_path / "index", dense(**plan), encode=Encode())
    older(tmp_path / "index")
    assert shown in refused("by one rule", lambda: store.read_manifest(tmp_path / "index")).next_step


def test_vectors_alone_have_no_words_and_stay_as_they_are(tmp_path: Path) -> None:
    build_index(corpus(tmp_path / "c.jsonl", 40), tmp_path / "index", dense(kind="dense"), encode=Encode())
    older(tmp_path / "index")
    assert store.open_shard(tmp_path / "index").kind == "dense"


# --------------------------------------------------------------------------------------------------------- faiss's ids

ROWS = 40
IDS = {
    "as rows": np.arange(ROWS),
    "from 1": np.arange(1, ROWS + 1),
    "permuted": np.arange(ROWS)[::-1].copy(),
    "far": np.arange(ROWS) * 10,
    "twice": np.arange(ROWS) // 2,
    "negative": np.arange(ROWS) - 1,
}
FACTORIES = ("IDMap,Flat", "IDMap2,HNSW8", "IVF2,Flat", "IVF2,SQ8", "PCA8,IVF2,Flat", "IDMap,IVF2,Flat")
CASES = list(itertools.product(IDS, FACTORIES))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("ids") / "c.jsonl", ROWS)


@pytest.mark.parametrize(("kind", "factory"), CASES)
def test_an_index_with_ids_of_its_own_is_refused_where_it_is_opened(
    source: Path, tmp_path: Path, kind: str, factory: str
) -> None:
    table = Encode()([document.contents for document in read_corpus(source)])
    theirs = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
    theirs.train(table)
    theirs.add_with_ids(table, IDS[kind])
    faiss.write_index(theirs, str(tmp_path / "theirs.index"))
    plan = dense(factory, kind="dense", faiss_file=tmp_path / "theirs.index")
    if kind == "as rows":
        build_index(source, tmp_path / "index", plan, encode=Encode())
        hits = store.open_shard(tmp_path / "index").search([], table, 1, Knobs(), "dense")[0]
        assert (hits.rows[:, 0] == np.arange(ROWS)).mean() > 0.9
        return
    if kind == "permuted" and "IDMap" not in factory:
        # Inverted lists keep their ids in any order: what they are ids of is known by the encoder alone.
        refused("those of the corpus's rows", lambda: build_index(source, tmp_path / "index", plan, encode=Encode()))
        assert not (tmp_path / "index").exists()
        return
    rule = "the ids of an index are the corpus's rows"
    refused(rule, lambda: build_index(source, tmp_path / "index", plan, encode=Encode()))
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.index"]

    # A folder that an older version made of it.
    build_index(source, tmp_path / "index", dense("HNSW8", kind="dense"), encode=Encode())
    (tmp_path / "theirs.index").replace(tmp_path / "index" / store.part_name(0))
    store.seal(tmp_path / "index", store.read_manifest(tmp_path / "index"), lambda done, total: None)
    refused(rule, lambda: store.open_shard(tmp_path / "index"))
    cfg = load("quickstart", [f"data.corpus={tmp_path / 'index'}", "eval.every=0"])
    refused(rule, lambda: corpora.check(cfg))  # before a run or a server starts anything


# ------------------------------------------------------------------------------------------------------ search servers


def test_what_a_search_server_refuses_is_shown_with_its_text() -> None:
    reply = {"detail": [{"loc": ["body", "top_n"], "msg": "Field required"}]}
    there = httpx.MockTransport(lambda request: httpx.Response(422, json=reply))
    with pytest.raises(Fault) as caught:
        HttpSearch("http://h:1", transport=there).search(["a"], 1, "train")
    assert "422" in caught.value.detail and "top_n" in caught.value.detail and "Field required" in caught.value.detail
