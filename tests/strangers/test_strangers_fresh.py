"""Files and folders in further forms that others' tools write: read right, or refused by a rule, with a next step that
works."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pytest
import torch
from folders import DIM, Encode, corpus, dense
from pyarrow import feather, ipc
from pyarrow import parquet as pq

from launch.main import main as console
from ssp.base.errors import InputError
from ssp.config.role import RoleConfig
from ssp.data.readers import Target, read_corpus, read_questions, read_targets
from ssp.game import protocols
from ssp.game.evaluation import predictions
from ssp.game.rollout import agents
from ssp.game.rollout.tools import function
from ssp.learning.coldstart import ARTEFACT
from ssp.learning.learner import PolicyLearner
from ssp.search.hits import Knobs
from ssp.search.index import store
from ssp.search.index.builder import IndexPlan, build_index
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings import load
from tests.strangers.inputs.models.oddfolders import EMBEDDINGS, HEAD, Odd, make

LINES = "every line is one JSON object"
TEXTS = "is a text, or a list of texts"
ROWS = "a data file is rows in UTF-8"
WORDS = "a right answer is in words"
LIKE = "a column that is named like right answers"
ONE = "a text is one right answer"
UNICODE = "a data file is UTF-8"
WHO = {"question": "who?", "answer": "Köln"}
WHERE = {"question": "where?", "answer": "Belu"}


def jsonl(*rows: object, **how: Any) -> bytes:
    return "".join(json.dumps(row, **how) + "\n" for row in rows).encode()


def put(folder: Path, name: str, content: bytes | pa.Table) -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path)
    return path


def refused(rule: str, act: Callable[[], object]) -> InputError:
    with pytest.raises(InputError) as caught:
        act()
    assert rule in caught.value.rule
    assert caught.value.next_step
    return caught.value


# ----------------------------------------------------------------------------------------------------------- questions

ASKED = [("who?", ("Köln",)), ("where?", ("Belu",))]
NESTED = pa.table(
    {
        "id": pa.array([7], pa.int64()),
        "question": pa.array(["who?"]).dictionary_encode(),
        "golden_answers": pa.array([["Köln", "Cologne"]], pa.large_list(pa.large_string())),
        "metadata": [{"hops": 2.0, "url": None, "tags": [{"a": 1}]}],
    }
)
QUESTIONS_READ = {
    "bom_crlf.jsonl": (b"\xef\xbb\xbf" + jsonl(WHO, WHERE, ensure_ascii=False).replace(b"\n", b"\r\n\r\n"), ASKED),
    "two_members.jsonl.gz": (gzip.compress(jsonl(WHO)) + gzip.compress(jsonl(WHERE)), ASKED),
    "line_signs.jsonl": (
        jsonl({"question": "who\u2028is\u0085it?", "answer": "Köln"}, ensure_ascii=False),
        [("who\u2028is\u0085it?", ("Köln",))],
    ),
    "array.jsonl": (json.dumps([WHO, WHERE]).encode(), ASKED),
    "array.json.gz": (gzip.compress(json.dumps([WHO, WHERE]).encode()), ASKED),
    "excel.csv": ("\ufeffquestion,answer\r\nwho?,Köln\r\nwhere?,Belu\r\n".encode(), ASKED),
    "nested.parquet": (NESTED, [("who?", ("Köln", "Cologne"))]),
    "options_and_words.jsonl": (
        jsonl({"question": "which?", "options": {"A": "Belu", "B": "Oru"}, "answer": "Oru", "answer_idx": "B"}),
        [("which?", ("Oru",))],
    ),
    "options_of_numbers.jsonl": (
        jsonl({"question": "how many?", "choices": ["3", "4"], "answer": "4"}),
        [("how many?", ("4",))],
    ),
    "same_answers.jsonl": (
        jsonl({"question": "who?", "answer": "köln", "golden_answers": ["Köln"]}),
        [("who?", ("Köln",))],
    ),
}


@pytest.mark.parametrize("name", QUESTIONS_READ)
def test_questions_are_read(name: str, tmp_path: Path) -> None:
    content, right = QUESTIONS_READ[name]
    assert [(q.question, q.answers) for q in read_questions(put(tmp_path, name, content))] == right


TOWN = "Which town lies on the Oru?"
QUESTIONS_REFUSED: dict[str, tuple[bytes | pa.Table, str]] = {
    "mmlu_pro.jsonl": (
        jsonl({"question_id": 70, "question": TOWN, "options": ["Belu", "Oru"], "answer": "B", "answer_index": 1}),
        WORDS,
    ),
    "choices.jsonl": (jsonl({"question": TOWN, "choices": ["Belu", "Oru"], "answer": ["(B)"]}), WORDS),
    "choice_labels.jsonl": (
        jsonl({"question": TOWN, "choices": {"text": ["Belu", "Oru"], "label": ["A", "B"]}, "answer": "B"}),
        WORDS,
    ),
    "choice_rows.jsonl": (
        jsonl(
            {
                "question": TOWN,
                "choices": [{"label": "A", "text": "Belu"}, {"label": "B", "text": "Oru"}],
                "answer": "A",
            }
        ),
        WORDS,
    ),
    "letters_as_columns.jsonl": (jsonl({"question": TOWN, "A": "Belu", "B": "Oru", "answer": "B"}), WORDS),
    "two_columns.jsonl": (jsonl({"question": "who?", "answer": "Oru", "answers": ["Köln"]}), LIKE),
    "one_empty.jsonl": (jsonl({"question": "who?", "answer": "Oru", "golden_answers": []}), LIKE),
    "number.jsonl": (jsonl({"question": "when?", "answer": 1889}), TEXTS),
    "yes.jsonl": (jsonl({"question": "is it?", "answer": True}), TEXTS),
    "nan.jsonl": (b'{"question": "is it?", "answer": NaN}\n', TEXTS),
    "null.jsonl": (jsonl({"question": "is it?", "answer": None}), "a row has its right answers in"),
    "date.parquet": (pa.table({"question": ["when?"], "answer": pa.array([0], pa.date32())}), TEXTS),
    "key_twice.jsonl": (b'{"question": "who?", "answer": "x", "answer": "y"}\n', LINES),
    "mixed_ids.jsonl": (jsonl({**WHO, "id": 1}, {**WHERE, "id": "1"}), "ids are unique"),
    "float_ids.parquet": (pa.table({"id": [1.0, None], "question": ["a", "b"], "answer": ["x", "y"]}), "a string or"),
    "long.jsonl": (jsonl({**WHO, "context": "x" * 1_000_000}), "at most"),
    "metadata_text.jsonl": (jsonl({**WHO, "metadata": "{'hops': 2}"}), "is an object"),
}


@pytest.mark.parametrize("name", QUESTIONS_REFUSED)
def test_questions_are_refused(name: str, tmp_path: Path) -> None:
    content, rule = QUESTIONS_REFUSED[name]
    path = put(tmp_path, name, content)
    refused(rule, lambda: read_questions(path))


@pytest.mark.parametrize(
    "text",
    ["Oru;;Belu", "Oru¦Belu", "Oru OR Belu", "Oru // Belu", "Oru##Belu", "Oru%%Belu", "Oru\\nBelu"],
)
def test_answers_joined_in_other_ways_are_refused(text: str, tmp_path: Path) -> None:
    for value in (text, [text]):
        path = put(tmp_path, "q.jsonl", jsonl({"question": "who?", "answer": value}))
        refused(ONE, lambda path=path: read_questions(path))


@pytest.mark.parametrize(
    "text", ["truth or dare", "\\nabla f", "\\neq", "http://oru.org", "C#", "100%", "Portland, OR", "F#; G", "I OR"]
)
def test_one_answer_stays_one(text: str, tmp_path: Path) -> None:
    path = put(tmp_path, "q.jsonl", jsonl({"question": "who?", "answer": text}))
    assert [q.answers for q in read_questions(path)] == [(text,)]


def arrow_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "on_one_line.jsonl": (lambda path: path.write_bytes(jsonl(WHO, WHERE).replace(b"\n", b"")), LINES),
    "mac_lines.jsonl": (lambda path: path.write_bytes(jsonl(WHO, WHERE).replace(b"\n", b"\r")), LINES),
    "indented.jsonl": (lambda path: path.write_bytes(jsonl(WHO, WHERE, indent=1)), LINES),
    "commas.jsonl": (lambda path: path.write_bytes(jsonl(WHO, WHERE).replace(b"\n", b",\r\n")), LINES),
    "powershell.jsonl": (lambda path: path.write_bytes(jsonl(WHO, WHERE).decode().encode("utf-16")), ROWS),
    "windows.jsonl": (
        lambda path: path.write_bytes(jsonl(WHO, WHERE, ensure_ascii=False).decode().encode("cp1252")),
        UNICODE,
    ),
    "data-00000-of-00001.arrow": (lambda path: arrow_stream(path, pa.Table.from_pylist([WHO, WHERE])), ROWS),
    "q.feather": (lambda path: feather.write_feather(pa.Table.from_pylist([WHO, WHERE]), path), ROWS),
}
"""Files of rows that are no lines → what writes them, and the rule."""


@pytest.mark.parametrize("name", OTHERS)
def test_the_advice_about_a_file_of_another_form_works(name: str, tmp_path: Path) -> None:
    """And what was there stays as it was, also a file of the same name in the right form."""
    write, rule = OTHERS[name]
    folder = tmp_path / "a folder"
    folder.mkdir()
    write(folder / name)
    if not name.endswith(".jsonl"):
        put(folder, Path(name.removesuffix(".gz")).stem + ".jsonl", b"{}\n")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    step = refused(rule, lambda: read_questions(folder / name)).next_step
    command = (
        step.partition(": ")[2] if "make one line" not in step else step.partition("object: ")[2].partition("; ")[0]
    )
    command = command.replace("ITS-ENCODING", "WINDOWS-1252").replace("python3", sys.executable, 1)
    subprocess.run(command, shell=True, check=True)
    assert {path: path.read_bytes() for path in before} == before
    (made,) = set(folder.iterdir()) - set(before)
    assert [(q.question, q.answers) for q in read_questions(made)] == ASKED


def test_targets_need_no_more_than_an_answer(tmp_path: Path) -> None:
    path = put(tmp_path, "t.jsonl", jsonl({"ground_truth": "Oru"}, {"ground_truth": "Belu", "search_turns": "2"}))
    assert read_targets(path) == [Target("0", "Oru"), Target("1", "Belu", 2)]
    path = put(tmp_path, "n.jsonl", jsonl({"ground_truth": 1889}))
    refused("ground_truth is a string", lambda: read_targets(path))


def test_the_advice_about_a_list_of_targets_works(tmp_path: Path) -> None:
    path = put(tmp_path, "targets.txt", b"Jane Austen\nOru\n")
    subprocess.run(refused(LINES, lambda: read_targets(path)).next_step.partition(": ")[2], shell=True, check=True)
    assert read_targets(tmp_path / "targets.jsonl") == [Target("0", "Jane Austen"), Target("1", "Oru")]


# --------------------------------------------------------------------------------------------------------- predictions

FORM = "a prediction is the answer alone"
PREDICTED: dict[str, tuple[bytes, str]] = {
    "end.jsonl": (jsonl({"id": 1, "prediction": "Köln<|im_end|>"}, {"id": 2, "prediction": "x"}), FORM),
    "llama.jsonl": (jsonl({"id": 1, "prediction": "Köln</s>"}, {"id": 2, "prediction": "x"}), FORM),
    "open_tag.jsonl": (jsonl({"id": 1, "prediction": "<answer> Köln"}, {"id": 2, "prediction": "x"}), FORM),
    "number.jsonl": (jsonl({"id": 1, "prediction": 1889}, {"id": 2, "prediction": "x"}), "prediction is a string"),
    "nan.jsonl": (b'{"id": 1, "prediction": NaN}\n', "prediction is a string"),
    "padded.jsonl": (jsonl({"id": "01", "prediction": "x"}), "a prediction's id is that of a question"),
    "in_order.jsonl": (jsonl({"prediction": "x"}, {"prediction": "y"}), "a prediction's id is that of a question"),
}


@pytest.mark.parametrize("name", PREDICTED)
def test_predictions_are_refused(name: str, tmp_path: Path) -> None:
    content, rule = PREDICTED[name]
    asked = read_questions(put(tmp_path, "q.jsonl", jsonl({**WHO, "id": 1}, {**WHERE, "id": 2})))
    path = put(tmp_path, name, content)
    refused(rule, lambda: predictions.read([path], {"q": asked}))


def test_the_advice_about_one_object_of_predictions_works(tmp_path: Path) -> None:
    asked = {"q": read_questions(put(tmp_path, "q.jsonl", jsonl({**WHO, "id": 1}, {**WHERE, "id": 2})))}
    path = put(tmp_path, "predictions.json", jsonl({"1": "Köln", "2": "Oru"}))
    step = refused("a prediction's id", lambda: predictions.read([path], asked)).next_step
    command = step[step.index("jq") :]
    made = put(tmp_path, "p.jsonl", subprocess.check_output(command, shell=True, stdin=path.open("rb")))
    assert [row.em for row in predictions.read([made], asked)["q"]] == [1.0, 0.0]


# ----------------------------------------------------------------------------------------------- corpora and indexes

RIVER = {"id": "1", "contents": "Oru\na river é"}
TOWNS = {"id": "2", "contents": "Belu\na town"}
PASSAGES = [("1", "Oru\na river é"), ("2", "Belu\na town")]
CORPORA = {
    "bom_crlf.jsonl": (b"\xef\xbb\xbf" + jsonl(RIVER, TOWNS, ensure_ascii=False).replace(b"\n", b"\r\n"), PASSAGES),
    "two_members.jsonl.gz": (gzip.compress(jsonl(RIVER)) + gzip.compress(jsonl(TOWNS)), PASSAGES),
    "nan_beside.jsonl": (jsonl({**RIVER, "score": float("nan")}, TOWNS), PASSAGES),
    "large_ids.jsonl": (jsonl({**RIVER, "id": 2**70}, TOWNS), [(str(2**70), PASSAGES[0][1]), PASSAGES[1]]),
    "embedded.parquet": (pa.Table.from_pylist([{**RIVER, "emb": [0.5]}, {**TOWNS, "emb": [0.25]}]), PASSAGES),
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_is_read_and_indexed(name: str, tmp_path: Path) -> None:
    content, right = CORPORA[name]
    path = put(tmp_path, name, content)
    assert [(document.id, document.contents) for document in read_corpus(path)] == right
    build_index(path, tmp_path / "index", IndexPlan())
    shard = store.open_shard(tmp_path / "index")
    assert [(document.id, document.contents) for document in shard.fetch(np.arange(2))] == right
    assert shard.search(["town"], None, 1, Knobs(), "bm25")[0].rows.tolist() == [[1]]


CORPORA_REFUSED = {
    "title_null.jsonl": (jsonl({"id": "1", "title": None, "text": "x"}), "title is a string"),
    "chunks.jsonl": (jsonl({**RIVER, "chunk": 0}, {**RIVER, "chunk": 1}), "ids are unique"),
    "story.jsonl": (jsonl({"docid": "1", "title": "T", "story": "x"}), "a corpus row has"),
}


@pytest.mark.parametrize("name", CORPORA_REFUSED)
def test_a_corpus_is_refused(name: str, tmp_path: Path) -> None:
    content, rule = CORPORA_REFUSED[name]
    path = put(tmp_path, name, content)
    refused(rule, lambda: read_corpus(path))
    refused(rule, lambda: build_index(path, tmp_path / "index", IndexPlan()))


def test_a_table_without_names_loses_no_passage_in_silence(tmp_path: Path) -> None:
    unnamed = put(tmp_path, "passages.tsv", b"river\ta river\ntown\ta town\n")
    refused("a corpus row has", lambda: read_corpus(unnamed))
    for name, content in (
        ("collection.tsv", b"0\ta river\n1\ta town\n"),  # MS MARCO's, which names no columns
        ("named.tsv", b"id\tcontents\n0\ta river\n1\ta town\n"),
        (
            "body.jsonl",
            jsonl({"docid": "1", "title": "", "body": "a river"}, {"docid": "2", "title": "", "body": "a town"}),
        ),
    ):
        documents = read_corpus(put(tmp_path, name, content))
        assert [document.contents.strip('"\n') for document in documents] == ["a river", "a town"], name


def flat(table: np.ndarray, metric: int = faiss.METRIC_INNER_PRODUCT) -> Any:
    made = faiss.index_factory(table.shape[1], "Flat", metric)
    made.add(np.ascontiguousarray(table))
    return made


FAISS: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "distances": (lambda table: flat(table, faiss.METRIC_L2), "ranks by inner product"),
    "fewer rows": (lambda table: flat(table[:30]), "an index has the corpus's 40 rows"),
    "other encoder": (lambda table: flat(table[:, :8]), "an index has the corpus's 40 rows"),
}


@pytest.mark.parametrize("name", FAISS)
def test_an_index_of_faiss_is_refused(name: str, tmp_path: Path) -> None:
    source = corpus(tmp_path / "c.jsonl", 40)
    made, rule = FAISS[name]
    table = Encode()([document.contents for document in read_corpus(source)])
    assert table.shape == (40, DIM)
    faiss.write_index(made(table), str(tmp_path / "theirs.index"))
    plan = dense("Flat", kind="dense", faiss_file=tmp_path / "theirs.index")
    refused(rule, lambda: build_index(source, tmp_path / "index", plan, encode=Encode()))


# -------------------------------------------------------------------------------------------------------------- models


def two_halves(odd: Odd) -> None:
    kinds = [torch.bfloat16, torch.float16]
    odd.put({name: tensor.to(kinds[at % 2]) for at, (name, tensor) in enumerate(odd.weights.items())})


def padded(odd: Odd) -> None:
    """More rows than the tokenizer has ids."""
    rows = odd.weights[EMBEDDINGS]
    odd.config["vocab_size"] = len(rows) + 64
    odd.put({**odd.weights, EMBEDDINGS: torch.cat([rows, torch.zeros(64, rows.shape[1])])})


def empty_shard(odd: Odd) -> None:
    placed = odd.shards(odd.weights, 2)
    odd.put({}, "model-00003-of-00003.safetensors")
    odd.index(placed | {"nothing": "model-00003-of-00003.safetensors"})


def snapshot(odd: Odd) -> None:
    """As the hub's cache has it: links to blobs."""
    odd.put(odd.weights)
    blobs = odd.folder.parent / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(odd.folder.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(Path("..") / "blobs" / str(number))


@pytest.mark.parametrize("kind", [two_halves, padded, empty_shard, snapshot])
def test_a_model_is_taken(kind: Callable[[Odd], None], tmp_path: Path) -> None:
    odd = make(kind, tmp_path / "model")
    read_scene(load("quickstart", [f"defaults.model={odd.folder}"]))
    weights = PolicyLearner(odd.folder, {"solver": RoleConfig()}, protocol="mini").weights()
    assert weights.keys() == odd.weights.keys()
    for name, tensor in odd.weights.items():
        given = torch.from_numpy(weights[name])[: len(tensor)]
        assert torch.allclose(given, tensor, rtol=1e-2)


def eight_bits(odd: Odd) -> None:
    odd.put({**odd.weights, EMBEDDINGS: odd.weights[EMBEDDINGS].to(torch.float8_e4m3fn)})


def head_bias(odd: Odd) -> None:
    odd.config["tie_word_embeddings"] = False
    odd.put({**odd.weights, HEAD: odd.own_head(), "lm_head.bias": torch.ones(len(odd.weights[EMBEDDINGS]))})


def no_flag_no_head(odd: Odd) -> None:
    del odd.config["tie_word_embeddings"]
    odd.put(odd.weights)


def zero_bytes(odd: Odd) -> None:
    odd.index(odd.shards(odd.weights, 2))
    (odd.folder / "model-00002-of-00002.safetensors").write_bytes(b"")


def setting(**changes: Any) -> Callable[[Odd], None]:
    def kind(odd: Odd) -> None:
        odd.config.update(changes)
        odd.put(odd.weights)

    return kind


GIVES = "a model's configuration gives"
MODELS_REFUSED: dict[str, tuple[Callable[[Odd], None], str]] = {
    "eight bits": (eight_bits, "floating-point numbers"),
    "a bias of the head": (head_bias, "parameters of the model"),
    "no flag and no head": (no_flag_no_head, "every parameter"),
    "a shard of no bytes": (zero_bytes, "readable safetensors"),
    "another family": (setting(model_type="mamba2", architectures=["Mamba2ForCausalLM"]), "computes Llama"),
    "another activation": (setting(hidden_act="gelu"), "hidden_act"),
    "yarn": (setting(rope_parameters={"rope_type": "yarn", "factor": 4.0}), "rope type"),
    "llama3 of texts": (
        setting(
            rope_parameters={"rope_type": "llama3", "factor": "eight", "low_freq_factor": 1.0}
            | {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
        ),
        "llama3 gives numbers",
    ),
    "rope is a text": (setting(rope_parameters="linear"), f"{GIVES} rope_parameters"),
    "theta is null": (setting(rope_parameters=None, rope_theta=None), f"{GIVES} rope_theta"),
    "eps is null": (setting(rms_norm_eps=None), f"{GIVES} rms_norm_eps"),
    "a context of a float": (setting(max_position_embeddings=4096.0), "max_position_embeddings"),
    "a number as text": (setting(num_hidden_layers="2"), f"{GIVES} num_hidden_layers"),
}


@pytest.mark.parametrize("name", MODELS_REFUSED)
def test_a_model_is_refused_before_a_run_starts(name: str, tmp_path: Path) -> None:
    kind, rule = MODELS_REFUSED[name]
    folder = make(kind, tmp_path / "model").folder
    refused(rule, lambda: read_scene(load("quickstart", [f"defaults.model={folder}"])))


@pytest.mark.parametrize("name", ["another family", "theta is null", "eps is null", "a number as text"])
def test_so_does_a_learner(name: str, tmp_path: Path) -> None:
    folder = make(MODELS_REFUSED[name][0], tmp_path / "model").folder
    refused("", lambda: PolicyLearner(folder, {"solver": RoleConfig()}, protocol="mini"))


# ---------------------------------------------------------------------------------------------------- agents and tools


def no_coroutine(question: str, client: Any, model: str, tools: Any) -> str:
    return "Oru"


async def generator(question: str, client: Any, model: str, tools: Any) -> Any:
    yield "Oru"


async def by_name(question: str, client: Any, model: str, *, tools: Any) -> str:
    return "Oru"


async def four_and_one(question: str, client: Any, model: str, tools: Any, turns: int = 3) -> str:
    return "Oru"


async def any_number(*given: Any) -> str:
    return "Oru"


@pytest.mark.parametrize(
    ("made", "fits"),
    [(no_coroutine, False), (generator, False), (by_name, False), (four_and_one, True), (any_number, True)],
)
def test_an_agent_is_what_can_be_called_with_four(made: Any, fits: bool) -> None:
    if not fits:
        refused("an agent is an async function", lambda: agents.find("a.py:solve", lambda place: made, 5.0))
        return
    assert agents.find("a.py:solve", lambda place: made, 5.0)


def some(*words: str) -> str:
    return ""


def named(query: str, **more: str) -> str:
    return ""


def unbound(self: Any, query: str) -> str:
    return ""


def reserved(query: str, model_config: str = "") -> str:
    return ""


@pytest.mark.parametrize("made", [some, named, unbound, reserved])
def test_a_tool_has_parameters_that_a_policy_can_give(made: Any) -> None:
    refused("a tool's parameters have names", lambda: function(made, "t.py:made"))


@pytest.mark.parametrize("tag", ["search", "think", "answer", "information"])
def test_a_tool_is_not_called_like_a_tag(tag: str) -> None:
    def tool(query: str) -> str:
        return ""

    tool.__name__ = tag
    offer = function(tool, "t.py:tool").offer
    refused("a tool has a name of its own", lambda: protocols.get("search-r1").offering([offer]))


# ---------------------------------------------------------------------------------------------------------------- runs


def run_folder(folder: Path) -> Path:
    checkpoint = folder / "checkpoints" / "solver" / "v1"
    shutil.copytree(ARTEFACT, checkpoint)
    (folder / "config.yaml").write_text("config: quickstart\n")
    state = {"folders": {"solver": "checkpoints/solver/v1"}}
    (folder / "checkpoints" / "state.json").write_text(json.dumps(state))
    return folder


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "state": (lambda run: half(run / "checkpoints" / "state.json"), "state.json"),
    "no checkpoint": (lambda run: shutil.rmtree(run / "checkpoints" / "solver"), "v1"),
    "weights": (lambda run: half(run / "checkpoints" / "solver" / "v1" / "model.safetensors"), "model.safetensors"),
    "tokenizer": (lambda run: (run / "checkpoints/solver/v1/tokenizer.json").unlink(), "tokenizer.json"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_half_copied_run_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path / "a run")
    spoil, said = SPOILED[name]
    spoil(run)
    assert console(["ask", "vene nation ?", "--policy", str(run), "--config", "quickstart"]) == 2
    assert said in capsys.readouterr().err


def test_the_advice_about_a_run_with_a_space_in_its_name_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path / "a run")
    assert console(["inspect", str(run)]) == 2
    assert f"ssp bank '{run}' --episodes" in capsys.readouterr().err
