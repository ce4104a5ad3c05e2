"""Whatever is typed, and whatever stands in a file, ends in a result or in one paragraph: no traceback, nothing half-written,
and nothing that a terminal would obey."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launch import main as console
from ssp.base.errors import Fault, InputError
from ssp.base.models import read_json
from ssp.base.printable import printable
from ssp.capacity.memory import shapes
from ssp.data import readers
from ssp.engines.folder import ModelFolder
from ssp.game.evaluation import predictions
from ssp.game.protocols import load as protocols
from ssp.learning.warmup import rag, traces
from ssp.record import episodes
from ssp.record.ledger import Ledger
from ssp.record.manifest import read_record, read_state
from ssp.search.index import store
from ssp.selfplay.questions import files as bank
from ssp.selfplay.settings import load
from ssp.telemetry import runlog, timeline
from ssp.views.board import parts

QUESTION = '{"id": "a", "question": "who ?", "golden_answers": ["b"], "metadata": {"hops": 2}}\n'
DOCUMENT = '{"id": "1", "contents": "\\"Title\\"\\ntext of it"}\n'
CONFIG = "defaults: {batch: 4}\nsolver:\n  reward: em\n  reward_options: {}\nsteps: 3\n"
PROTOCOL = "id: mine\nversion: 1\ninherits: search-r1\nkinds: [think, call]\nsearch: {tag: call, form: '{query}'}\n"
MODEL = '{"num_attention_heads": 2, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 9}'
STATE = '{"step": 1, "folders": {"solver": "checkpoints/solver/v1"}, "sha256": "x"}'
TRACE = '{"question": "who ?", "answer": "b", "messages": [{"role": "user", "content": "x"}]}\n'
METRIC = '{"step": 1, "role": "eval", "time": 1.0, "accuracy": 0.5}\n'


def of_model(take: Callable[[Path], object]) -> Callable[[Path], object]:
    """What reads a file of a model: `take` gets its folder, with a configuration."""

    def reader(file: Path) -> object:
        config = file.with_name("config.json")
        config.write_text(MODEL, encoding="utf-8")
        try:
            return take(file.parent)
        finally:
            config.unlink()

    return reader


READERS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "questions": ("q.jsonl", QUESTION, readers.read_questions),
    "packed questions": ("q.jsonl.gz", QUESTION, readers.read_questions),
    "zst questions": ("q.jsonl.zst", QUESTION, readers.read_questions),
    "parquet questions": ("q.parquet", QUESTION, readers.read_questions),
    "targets": ("t.jsonl", '{"ground_truth": "Jane", "search_turns": "2"}\n', readers.read_targets),
    "corpus": ("c.jsonl", DOCUMENT, readers.read_corpus),
    "stream": ("c.jsonl", DOCUMENT, lambda path: list(readers.stream_corpus(path))),
    "found": ("found.json", '{"result": [[{"document": {"id": "1", "contents": "x"}}]]}', lambda path: rag.read_found([path])),
    "config": ("c.yaml", CONFIG, lambda path: load(str(path))),
    "config of a run": ("config.yaml", CONFIG, lambda path: load(str(path), trusted=False)),
    "protocol": ("p.yaml", PROTOCOL, lambda path: load("quickstart", [f"protocol={path}"])),
    "protocol file": ("p.yaml", PROTOCOL, lambda path: protocols.read(path, lambda name: path)),
    "model": ("config.json", MODEL, read_json),
    "shape": ("config.json", MODEL, lambda path: shapes.find(str(path.parent))),
    "weights": ("model.safetensors", "\x10\0\0\0\0\0\0\0" + '{"a": {"shape": [1]}}', of_model(lambda folder: ModelFolder(folder).weights())),
    "index of weights": ("model.safetensors.index.json", '{"weight_map": {"a": "a.safetensors"}}', of_model(ModelFolder)),
    "size": ("model.safetensors", "\x10\0\0\0\0\0\0\0" + '{"a": {"shape": [1]}}', of_model(lambda folder: shapes.find(str(folder)))),
    "encoder": ("modules.json", "[]", lambda path: read_json(path, list)),
    "record": ("ssp.json", '{"role": "solver"}', lambda path: read_record(path.parent)),
    "state": ("state.json", STATE, lambda path: read_state(path, path.parent)),
    "metrics": ("metrics.jsonl", METRIC, runlog.read_metrics),
    "timeline": ("timeline.json", '[\n{"ph": "X"},\n', lambda path: timeline.Timeline(path).close()),
    "yardstick": ("yardstick.json", '{"rounds": []}', parts.yardstick),
    "traces": ("traces.jsonl", TRACE, traces.read),
    "predictions": ("q.jsonl", '{"id": "a", "question": "who ?", "answer": "b", "prediction": "c"}\n', lambda path: predictions.read([path], {})),
    "bank": ("bank.parquet", "PAR1", bank.read_bank),
    "episodes": ("e.parquet", "PAR1", episodes.read),
    "index": ("manifest.json", '{"format": "ssp", "sha256": "x"}', lambda path: store.read_manifest(path.parent)),
    "ledger": ("ledger.db", "SQLite format 3\0", lambda path: Ledger(path, readonly=True).close()),
}  # fmt: skip

BLOCKS = b"\n".join(b" " * depth + b"a:" for depth in range(1500))
"""YAML as deep as no parser follows it."""
TEXTS = st.text(st.characters(), max_size=30) | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl"]), max_size=8)
HUGE = st.sampled_from(
    ["[" * 3000, "[" * 900 + "]" * 900, "{a: " * 3000 + "1" + "}" * 3000, "9" * 5000, "x" * 100_000, "1e999"]
)
ODD = st.sampled_from(
    ["nan", "-inf", "null", "true", "1e26", "-1", "0", "[]", "{}", "''", "???", "${steps}", "${oc.env:HOME}", "!!python/name:os.system"]
    + ["&a [*a]", "2001-01-01", "0x10", "1_0", "~", "\x1b[2J", "\u202e", "\udcff", "a: b: c", "/dev/null", "/proc/x", "/", ".", "..", "%s"]
)  # fmt: skip
WORDS = TEXTS | ODD | HUGE
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def contents(draw: st.DrawFn, good: str) -> bytes:
    """Bytes of a file: anything, or a good one with something done to it."""
    way = draw(st.integers(0, 6))
    if way == 0:
        return draw(st.binary(max_size=200))
    if way == 1:
        return draw(WORDS).encode("utf-8", "surrogatepass")
    if way == 2:
        return (json.dumps(draw(JSON)) + "\n").encode()
    if way == 3:  # a good one whose values are others
        try:
            fields = json.loads(good)
        except ValueError:
            fields = {"steps": 1, "solver": {}, "id": "x", "search": {}}
        if isinstance(fields, dict):
            fields[draw(st.sampled_from(sorted(fields)))] = draw(JSON)
        return (json.dumps(fields) + "\n").encode()
    raw = bytearray(good.encode("latin-1") * draw(st.integers(1, 2)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        end = min(len(raw), at + draw(st.integers(0, 9)))
        raw[at:end] = draw(st.binary(max_size=6) | WORDS.map(lambda text: text.encode("utf-8", "surrogatepass")))
    return bytes(raw)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder that is the working folder too; `tempfile` makes its files beside it."""
    top, before = Path(tempfile.mkdtemp()), os.getcwd()
    (top / "in").mkdir()
    os.chdir(top / "in")
    try:
        yield top / "in"
    finally:
        os.chdir(before)
        shutil.rmtree(top)


def read(name: str, raw: bytes) -> None:
    file, _, reader = READERS[name]
    if file.endswith(".gz") and raw[:1] != b"\0":
        raw = gzip.compress(raw)
    with workplace() as place:
        (place / file).write_bytes(raw)
        try:
            reader(place / file)
        except (InputError, Fault) as error:
            printable(str(error)).encode()
        assert sorted(path.name for path in place.iterdir() if path.name != file) in (
            [],
            [f"{file}-shm", f"{file}-wal"],
        )


@st.composite
def reads(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(READERS)))
    return name, draw(contents(READERS[name][1]))


def run(argv: list[str], raw: bytes, config: bytes) -> int:
    with workplace() as place:
        (place / "file").write_bytes(raw)
        (place / "run" / "checkpoints").mkdir(parents=True)
        (place / "run" / "config.yaml").write_bytes(config)
        (place / "folder").mkdir()
        names = {"{file}": "file", "{folder}": "folder", "{run}": "run"}
        typed = list(argv)
        for name, path in names.items():
            typed = [word.replace(name, str(place / path)) for word in typed]
        typed = [re.sub("[\0\ud800-\udc7f\udd00-\udfff]", "", word) for word in typed]  # what no system passes on
        before = sorted(place.rglob("*"))
        out, err = io.StringIO(), io.StringIO()
        kept, tempfile.tempdir = tempfile.tempdir, str(place.parent)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = console.main(typed)
        except SystemExit as end:  # argparse's --help
            code = int(end.code or 0)
        finally:
            tempfile.tempdir = kept
        told = [path.read_text() for path in place.parent.glob("ssp-*.txt")]
        assert told == [] and code in (0, 1, 2), (typed, code, told)
        shown = out.getvalue() + err.getvalue()
        assert printable(shown) == shown, typed
        after = sorted(place.rglob("*"))
        assert code == 0 or after == before, (typed, [path for path in after if path not in before])
        return code


SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(SLOW, max_examples=60)
@given(reads())
def test_a_file_is_read_or_refused(case: tuple[str, bytes]) -> None:
    read(*case)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "raw", [b"", b"\0", b"\xff\xfe", b"[" * 3000, b'{"a":' * 3000, BLOCKS, b"{}", b"[]", b"1", b'"x"', b"null"]
)
def test_a_file_of_another_kind(name: str, raw: bytes) -> None:
    read(name, raw)


LINES = [
    ["train", "--dry-run", "run.name=\x1b[2J"], ["train", "--dry-run", "protocol={file}"], ["train", "--dry-run", "\udcff=1"],
    ["eval", "--predictions", "{file}", "--data", "{file}"], ["inspect", "{run}:\x1b[2J"], ["compare", "{run}", "\u202e"],
    ["bank", "{run}", "--show", "[/red]"], ["board", "{run}", "--save", "{folder}"], ["index", "--check", "{file}"],
    ["data", "convert", "{file}", "--to", "plain", "--out", "new.jsonl"], ["doctor", "--ledger", "{file}"], ["\x1b[2J"], [],
]  # fmt: skip


@pytest.mark.parametrize("argv", LINES, ids=repr)
def test_a_command_line_ends_well(argv: list[str]) -> None:
    run(argv, b'{"id": "\x1b[2J", "question": "[/x] ?", "answer": "\\u001b]0;t\\u0007"}\n', CONFIG.encode())
