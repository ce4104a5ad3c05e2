"""Questions with the documents that a search server found for them, as traces of a warm start: RAG prompt data.

The prompt is the documents as the protocol shows them, a blank line, the question; the policy's one turn hands in the
first right answer (after Search-R1's `nq_rag` data, in the words of our protocols).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ssp.base.episode import SOLVER, Document
from ssp.base.errors import InputError, hold
from ssp.data.readers import Question
from ssp.data.rows import show
from ssp.game.protocols import Protocol

TOPK = 3
"""Documents in a prompt, as in Search-R1's data."""


def read_found(paths: Sequence[Path]) -> list[list[Document]]:
    """The documents of each question, from replies of `POST /retrieve`: {"result": [[document, ...], ...]}, one list a
    question, the files one after the other. A document is {"id", "contents"}, or with its score {"document", "score"}.

    InputError naming the file, the row (from 0) and what is wrong with it.
    """
    return [documents for path in paths for documents in _reply(path)]


def traces(
    questions: Sequence[Question], found: Sequence[Sequence[Document]], protocol: Protocol, topk: int = TOPK
) -> list[dict[str, Any]]:
    """One trace a question (see `ssp.learning.warmup.traces`), with the best `topk` documents that were found for it.

    InputError: more or fewer results than questions, a question for which nothing was found, an answer that `protocol`
    cannot hand in.
    """
    rule = "--found holds one result for each question, in their order"
    hold(len(questions) == len(found), rule, f"{len(found):,} for {len(questions):,} questions", "ask for all of them")
    rows, role = [], protocol.role(SOLVER)
    for number, (question, documents) in enumerate(zip(questions, found, strict=True)):
        gold = question.answers[0].strip()
        inner = f"\\boxed{{{gold}}}" if role.boxed else gold
        turn = f"<{role.final}> {inner} </{role.final}>"
        if not documents or protocol.action(SOLVER, turn).final != gold:
            rule = f"a question has at least one document, and an answer that protocol {protocol.id} can hand in"
            which = f"row {number} ({question.id}): {show(gold) if documents else 'none'}"
            raise InputError(rule, which, "correct that row, or take it out of both files")
        fields = {"question": f"{protocol.bodies(documents[:topk]).strip()}\n\n{question.question}"}
        rows.append({"role": SOLVER, "fields": fields, "turns": [turn]})
    return rows


def _reply(path: Path) -> Iterator[list[Document]]:
    rule, step = 'a file of --found is a reply of /retrieve, {"result": [[...], ...]}', "save what the server answers"
    try:
        reply = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(rule, f"{path}: {error}", step) from error
    result = reply.get("result") if isinstance(reply, dict) else None
    if not isinstance(result, list):
        raise InputError(rule, f"{path}: {show(reply)}", step)
    for number, documents in enumerate(result):
        try:
            yield [_document(item) for item in documents]
        except (TypeError, ValueError, KeyError) as error:  # no list, no text, or half a character
            rule = 'a result is a list of documents {"id", "contents"} or {"document": {...}, "score"}'
            raise InputError(rule, f"{path}, row {number}: {show(documents)}", "correct that row") from error


def _document(item: dict[str, Any]) -> Document:
    inner = item["document"] if "document" in item else item
    if not isinstance(inner["contents"], str) or not inner["contents"].encode().strip():
        raise ValueError
    return Document(str(inner.get("id", "")), inner["contents"])
