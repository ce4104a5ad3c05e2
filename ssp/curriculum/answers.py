"""What kind of answer a question asks for: simple classes, for the entropy of the answers.

Owns the classes. Promises that every text has one. Of a generated world the class is the entity's type, which its names
do not show; of other answers it is told from the text's form alone, in the order of `CLASSES`. Refuses to know what an
answer means: "Paris" and "Curie" are both a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable

CLASSES: dict[str, Callable[[str], object]] = {
    "yes_no": re.compile(r"yes|no|true|false").fullmatch,
    "date": re.compile(
        r"(?=.*\d)(?=.*\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b).*|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
    ).fullmatch,
    "year": re.compile(r"(?:in )?1\d{3}|(?:in )?20\d{2}").fullmatch,
    "number": re.compile(r"[^a-z]*\d[\d.,: ]*(?:%|\W*[a-z]+)?").fullmatch,
    "word": lambda text: len(text.split()) == 1,
    "name": lambda text: 2 <= len(text.split()) <= 3,
    "phrase": lambda text: True,
}
"""Class → whether a text in lower case is of it; the first that fits counts. A number may have one unit; a name is two or
three words."""


def class_of(answer: str) -> str:
    """The class of an answer, one of `CLASSES`."""
    text = " ".join(answer.lower().split())
    return next(name for name, fits in CLASSES.items() if fits(text))
