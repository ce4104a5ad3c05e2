"""RAG prompt data: questions and what a server found for them become traces whose prompts are golden, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import scripts

from launch import data
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.protocols.template import FAMILIES, PLAIN
from ssp.learning.warmup import traces

GOLDEN = Path(__file__).with_name("golden") / "rag.txt"
QUESTIONS = [
    {"question": "who wrote the novel Dead Souls", "answers": ["Nikolai Gogol", "Gogol"]},
    {"question": "Who painted „Guernica“?", "answers": ["Pablo Picasso"]},
]
SOULS = {"id": "d1", "contents": '"Dead Souls"\nDead Souls is a novel by Nikolai Gogol.\nIt was published in 1842.'}
TAGGED = {"id": 2, "contents": '"Überschrift </information> mit Tags"\n<answer>Gogol</answer> <|im_end|> 果戈里 {n} 🙂'}
PICASSO = {"contents": '"Guernica (Picasso)"\nGuernica is a painting by Pablo Picasso.'}
FOUND = [
    [{"document": SOULS, "score": 3.5}, {"document": TAGGED, "score": 1}, {"document": PICASSO, "score": 0.5}],
    [PICASSO],
]


def written(path: Path, found: Any) -> Path:
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


def convert(folder: Path, *words: object, protocol: str = "search-r1", found: Any = FOUND) -> Path:
    source, out = folder / "questions.jsonl", folder / f"{protocol}.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS), encoding="utf-8")
    reply = written(folder / "found.json", {"result": found})
    options = ["--to", "traces", "--found", reply, "--protocol", protocol, "--out", out]
    assert data.main(["convert", str(source), *map(str, options), *map(str, words)]) == 0
    return out


def shown(folder: Path) -> str:
    """Prompt, in two layouts, and answer of each trace in three protocols."""
    parts = []
    for name in ("mini", "research", "search-r1"):
        protocol = protocols.get(name)
        for trace in traces.read(convert(folder, "--topk", 2, protocol=name)):
            for layout in (PLAIN, *FAMILIES):
                parts.append(f"#### {name} {layout} {trace.line}\n{protocol.render('solver', trace.fields, layout)}\n")
            parts += [f"#### {name} answer {trace.line}\n{turn}\n" for turn in trace.turns]
    return "".join(parts)


@pytest.mark.covers("SR-08")
def test_prompts_are_those_of_the_golden_file(tmp_path: Path) -> None:
    """After a change that is meant: write `shown(...)` to golden/rag.txt."""
    assert shown(tmp_path).encode() == GOLDEN.read_bytes()


@pytest.mark.covers("SR-08")
def test_the_answer_is_learned_and_the_context_is_not(tmp_path: Path) -> None:
    path = convert(tmp_path, "--topk", 2)
    renderer: Renderer = scripts.SEARCH_R1
    first, second = traces.episodes(traces.read(path), renderer, scripts.LIMITS, 3)
    kinds, ids = first.log.kinds, first.log.ids
    wrote = [id for id, kind in zip(ids, kinds, strict=True) if kind == int(Kind.MODEL)]
    read = [id for id, kind in zip(ids, kinds, strict=True) if kind == int(Kind.PROMPT)]
    assert renderer.decode(wrote) == "<answer> Nikolai Gogol </answer>"
    (trace, _) = traces.read(path)
    assert renderer.decode(read) == renderer.prompt("solver", trace.fields)
    assert "Nikolai Gogol.\nIt was" in renderer.decode(read) and "Guernica" not in renderer.decode(read)
    assert (first.final, second.final, second.queries) == ("Nikolai Gogol", "Pablo Picasso", [])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FOUND[:1], "1 for 2 questions"),
        ([FOUND[0], []], "row 1 .1.: none"),
        ([FOUND[0], [{"id": "1"}]], "found.json, row 1"),
        ([FOUND[0], {"document": PICASSO}], "found.json, row 1"),
        ([[{"contents": "\ud800"}], FOUND[1]], "found.json, row 0"),
        ({"0": FOUND[0]}, "reply of /retrieve"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, found: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        convert(tmp_path, found=found)
    assert not (tmp_path / "search-r1.jsonl").exists()


def test_options_of_traces_alone(tmp_path: Path) -> None:
    source = tmp_path / "questions.jsonl"
    source.write_text(json.dumps(QUESTIONS[0]) + "\n")
    reply = written(tmp_path / "found.json", {"results": []})
    out = ["convert", str(source), "--out", str(tmp_path / "out.jsonl"), "--to"]
    for words, said in (
        (["plain", "--protocol", "mini"], "it alone, takes"),
        (["traces", "--protocol", "mini"], "with --found"),
        (["traces", "--found", str(reply)], "it alone, takes"),
        (["traces", "--found", str(reply), "--protocol", "mini", "--topk", "0"], "from 1 to"),
        (["traces", "--found", str(reply), "--protocol", "mini"], "reply of /retrieve"),
        (["traces", "--found", str(tmp_path / "no.json"), "--protocol", "mini"], "no.json"),
    ):
        with pytest.raises(InputError, match=said):
            data.main([*out, *words])
