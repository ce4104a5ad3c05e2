"""Questions that nobody here wrote: the sub-questions of FanOutQA (arXiv 2402.14116) whose answer a
passage of the English corpus states, in an article of the title that FanOutQA names as its
evidence."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ssp.base.text import normalise
from ssp.extras.english import packages
from ssp.extras.english.sources import Sources

Row = dict[str, Any]
FILE = "data/fanout-final-dev.json"
_DISTINCT = re.compile(r"[^\W\d]{2}|\d{4}")
"""A number of a few digits stands in a passage by chance."""


def questions(sources: Sources) -> list[Row]:
    """Rows of a question file, in the order of the data set, each text once; hops are not
    stated."""
    passages = defaultdict[str, list[str]](list)
    """Normalised title → what its passages say."""
    for document in sources.documents:
        title = document.title.partition(": ")[0]
        passages[normalise(title)].append(f" {normalise(document.text)} ")

    (path,) = packages.files(packages.QUESTIONS, FILE)
    rows: dict[str, Row] = {}
    for part in _parts(json.loads(path.read_text(encoding="utf-8"))):
        question = part["question"]
        answer = str(part.get("answer"))  # a list, which is several answers, is in no passage
        if question in rows or not _DISTINCT.search(answer):
            continue
        title = (part.get("evidence") or {}).get("title", "")
        words = f" {normalise(answer)} "
        if any(words in text for text in passages.get(normalise(title), ())):
            rows[question] = {"id": part["id"], "question": question, "golden_answers": [answer]}
    return list(rows.values())


def _parts(questions: list[Row]) -> Iterator[Row]:
    """Each question, and the parts that it is made of."""
    for question in questions:
        yield question
        yield from _parts(question.get("decomposition", []))
