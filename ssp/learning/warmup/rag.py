"""Questions with the documents that a search server found for them, as traces of a warm start: RAG prompt data.

Owns the form: the documents as the protocol shows them, a blank line, the question; the policy's one turn hands in the
first right answer (after Search-R1's `nq_rag` data, in the words of our protocols). Promises that what a server answered
is read in the order of the questions, and that a row which does not fit is refused by its number. Refuses to search.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ssp.base.episode import SOLVER, Document
from ssp.base.errors import InputError
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
    if len(questions) != len(found):
        counts = f"{len(found):,} for {len(questions):,} questions"
        raise InputError("--found holds one result for each question, in their order", counts, "ask for all of them")
    rows = []
    for number, (question, documents) in enumerate(zip(questions, found, strict=True)):
        if not documents:
            raise _bad(number, question, "holds at least one document", "none", "take that question out of both files")
        fields = {"question": f"{protocol.bodies(documents[:topk]).strip()}\n\n{question.question}"}
        turn = _answer(protocol, question.answers[0])
        if protocol.action(SOLVER, turn).final != question.answers[0].strip():
            rule = f"has an answer that protocol {protocol.id} can hand in"
            raise _bad(number, question, rule, show(question.answers[0]), "correct that answer")
        rows.append({"role": SOLVER, "fields": fields, "turns": [turn]})
    return rows


def _answer(protocol: Protocol, gold: str) -> str:
    """A turn that hands in `gold`, as the role's prompt asks for it."""
    role = protocol.role(SOLVER)
    inner = f"\\boxed{{{gold.strip()}}}" if role.boxed else gold.strip()
    return f"<{role.final}> {inner} </{role.final}>"


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
        if not isinstance(documents, list):
            raise _row(path, number, documents)
        yield [_document(path, number, item) for item in documents]


def _document(path: Path, number: int, item: Any) -> Document:
    inner = item.get("document", item) if isinstance(item, dict) else None
    contents = inner.get("contents") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(contents, str) or not contents.strip():
        raise _row(path, number, item)
    try:
        contents.encode()
    except UnicodeEncodeError as error:
        raise _row(path, number, item) from error
    return Document(str(inner.get("id", "")), contents)


def _row(path: Path, number: int, found: Any) -> InputError:
    rule = 'a result is a list of documents {"id", "contents"} or {"document": {...}, "score"}'
    return InputError(rule, f"{path}, row {number}: {show(found)}", "correct that row")


def _bad(number: int, question: Question, rule: str, found: str, step: str) -> InputError:
    return InputError(f"a row of questions and results {rule}", f"row {number} ({question.id}): {found}", step)
