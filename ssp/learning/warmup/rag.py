"""Questions with the documents that a search server found for them, as traces of a warm start: RAG
prompt data.

The prompt is the documents as the protocol shows them, a blank line, the question; the policy's one
turn hands in the first right answer (after Search-R1's `nq_rag` data, in the words of our
protocols)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ssp.base.episode import SOLVER, Document
from ssp.base.errors import InputError, hold
from ssp.data.readers import Question
from ssp.data.rows import show
from ssp.game.protocols import Protocol
from ssp.search.serving.forms import Form, Given, RefusedRequest, read

TOPK = 3
"""Documents in a prompt, as in Search-R1's data."""


class _Found(Given):
    contents: Annotated[str, Field(pattern=r"\S")]


class _Reply(Form):
    result: list[list[_Found]]


def read_found(paths: Sequence[Path]) -> list[list[Document]]:
    """The documents of each question, from replies of `POST /retrieve`: {"result": [[document,
    ...], ...]}, one list a question, the files one after the other. A document is {"id",
    "contents"}, or with its score {"document", "score"}.

    InputError naming the file, the row (from 0) and what is wrong with it."""
    rows = []
    for path in paths:
        try:
            reply = read(_Reply, path.read_bytes())
        except (OSError, RefusedRequest) as error:
            rule = 'a file of --found is a reply of /retrieve, {"result": [[...], ...]}, with lists'
            rule += ' of documents {"id", "contents"} or {"document": {...}, "score"}'
            what = str(getattr(error, "detail", error)).replace("result.", "row ", 1)
            step = "save what the server answers, or correct that row"
            raise InputError(rule, f"{path}, {what}", step) from error
        for documents in reply.result:
            rows.append([document.document() for document in documents])
    return rows


def traces(
    questions: Sequence[Question],
    results: Sequence[Sequence[Document]],
    protocol: Protocol,
    topk: int = TOPK,
) -> list[dict[str, Any]]:
    """One trace a question (see `ssp.learning.warmup.traces`), with the best `topk` of its
    `results`, a list of documents a question.

    InputError: more or fewer results than questions, a question with none, an answer that
    `protocol` cannot hand in."""
    rule = "--found holds one result for each question, in their order"
    counts = f"{len(results):,} for {len(questions):,} questions"
    hold(len(questions) == len(results), rule, counts, "ask for all of them")
    rule = f"a question has at least one document, and an answer that protocol {protocol.id}"
    rule += " can hand in"
    step = "correct that row, or take it out of both files"
    rows = []
    role = protocol.role(SOLVER)
    for number, (question, documents) in enumerate(zip(questions, results, strict=True)):
        gold = question.answers[0].strip()
        inner = f"\\boxed{{{gold}}}" if role.boxed else gold
        turn = f"<{role.final}> {inner} </{role.final}>"
        fits = documents and protocol.action(SOLVER, turn).final == gold
        what = show(gold) if documents else "none"
        hold(fits, rule, f"row {number} ({question.id}): {what}", step)
        shown = protocol.bodies(documents[:topk]).strip()
        fields = {"question": f"{shown}\n\n{question.question}"}
        rows.append({"role": SOLVER, "fields": fields, "turns": [turn]})
    return rows
