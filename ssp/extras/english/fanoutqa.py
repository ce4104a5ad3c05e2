"""Questions that nobody here wrote: the sub-questions of FanOutQA (package `fanoutqa`, data CC
BY-SA 4.0, arXiv 2402.14116) whose answer a passage of the English corpus states, in an article of
the title that FanOutQA names as its evidence."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from ssp.base.text import normalise
from ssp.extras.english.sources import Sources, installed

PACKAGE = "fanoutqa"
FILE = "data/fanout-final-dev.json"


def versions() -> dict[str, str]:
    """The installed version; none where it is not."""
    try:
        return {PACKAGE: metadata.version(PACKAGE)}
    except metadata.PackageNotFoundError:
        return {}


def questions(sources: Sources) -> list[dict[str, Any]]:
    """Rows of a question file, in the order of the data set, each text once; hops are not
    stated."""
    said = defaultdict[str, list[str]](list)
    for document in sources.documents:
        said[normalise(document.title.partition(": ")[0])].append(f" {normalise(document.text)} ")
    (path,) = installed(PACKAGE, FILE)
    rows: dict[str, dict[str, Any]] = {}
    for part in _parts(json.loads(path.read_text(encoding="utf-8"))):
        question, answer = part["question"], str(part.get("answer"))
        title = (part.get("evidence") or {}).get("title", "")
        # A number of a few digits stands in a passage by chance; a list, which is several answers,
        # in none.
        if question in rows or not re.search(r"[^\W\d]{2}|\d{4}", answer):
            continue
        told = f" {normalise(answer)} "
        if any(told in text for text in said.get(normalise(title), ())):
            rows[question] = {"id": part["id"], "question": question, "golden_answers": [answer]}
    return list(rows.values())


def _parts(listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for part in listed:
        yield part
        yield from _parts(part.get("decomposition", []))
