"""The right answers of a row: the columns that hold them, and the texts that hold several of them.
A text that may hold several answers in no known form is refused: no policy could say it."""

import ast
import json
import re
from contextlib import suppress
from typing import Any

from ssp.base.text import normalise
from ssp.data.rows import Row, show

SEPARATOR = "<|answer_split|>"
"""What joins the right answers of a text in DeepResearcher's rows and in those made after them."""

FURTHER = ("answer_aliases", "aug_answer")
"""Columns of further right answers: MuSiQue's, ASearcher's. MMSearch has `candidate_answers` in its
reward_model; elsewhere candidates may be wrong answers, so that column is refused there."""

ANSWERABLE = {
    "answerable": True,
    "is_answerable": True,
    "unanswerable": False,
    "is_impossible": False,
}
"""Columns that say whether a question can be answered, and what they say where it can."""

_TRUTHS = dict.fromkeys(("true", "yes", "1", "1.0"), True)
_TRUTHS |= dict.fromkeys(("false", "no", "0", "0.0"), False)

COLUMNS = ("golden_answers", "answers", "answer")
"""Columns of a row's right answers; the first that is there is read. What stands in `reward_model`
comes before them."""

_MORE = re.compile(
    r"(?!pred|model|wrong|incorrect|s_aliases)(.*(answers|alias|aliases|answer_list|synonyms)|answer)$"
)
"""Names of columns that sound like right answers. PopQA's `s_aliases` are of the subject."""

_LABEL = re.compile(r"\(?[A-Za-z0-9][.)]?")
"""The letter or number of an option."""

_QUOTED = re.compile(r"\"?[\[{]+\s*\\?['\"]")
_TUPLE = re.compile(r"\(\s*['\"]")
_ENCLOSED = re.compile(r"[\[{][^\[\]{}]*[\]}]|\w+\([\[{].*\)", re.DOTALL)

_SEPARATORS = (
    r"<\|[^<>|]*\|>",  # <|sep|>
    r"[<\[]/?(?i:sep|or|br|s)\s*/?[>\]]",  # [SEP], <OR>, <br/>
    r"#{3}|@@|\s&&\s|\w\w\s*(;;|¦|%%|##)\s*\w\w|\w\s//\s\w",  # GSM8K's reasoning and answer, too
    r"[a-z)]\sOR\s\(?[A-Z]|\\n(?=[A-Z])",  # Talvik OR Belu, a line break as two signs
)
_PIPES = (
    r"\w[)\].'\"]*\s*\|\|+\s*[(\['\"]*\w",  # Talvik || Belu
    r"\w\w\)*\s*\|\s*\(*\w\w",  # Talvik|Belu, (Town|City) of Oru
    r"^[^{]*\S\s\|\s\S",  # 4 | 5, but not {x | x > 0}
    # A|B, but neither |x| nor P(A|B)
    r"^[^(){}\[\]|]*[^(){}\[\]|\s]\s*\|[^(){}\[\]|]*\w[^(){}\[\]|]*$",
)
_PATTERNS = (
    r"\\[sdwbSDWB](?![a-z])",  # \s?, \d{4}, but not \sqrt
    r"\.[*+]\??(\w|$)",  # Talvik.*
    r"\(\?[:i]|^\^.*\$$",  # (?i)talvik, ^Talvik$
    # (Lake )?Oru, Norr(mark)?, but not Yes (What?)
    r"\)\?[\w\\(]|(\(\s[^()]*|\([^()]*\s|\w\([^()\s]*)\)\?",
    r"\[(a-z|A-Z|0-9)|\w\w\((\w*\|)+\w*\)",  # [A-Z]alvik, Norr(mark|land)
)
_SEVERAL = (
    ("a separator", re.compile("|".join(_SEPARATORS))),
    ("pipes", re.compile("|".join(_PIPES))),
    ("a regular expression", re.compile("|".join(_PATTERNS))),
)
"""Marks of a text that stands for several answers, also inside of a list."""

_PERHAPS = re.compile(r"[\n\t；、｜]|\w\s*::\s*\w")
"""What stands between answers in some files, and inside one answer in others: only a list says
which."""


def answers(
    row: Row, place: Row, name: str, dropped: list[str] | None = None, one: bool = True
) -> list[str]:
    """The right answers in the column `name` of `place`, which is the row or lies in it, and in the
    columns of further ones. `one`: a text alone is an answer too, not only a list. With a list
    `dropped`, answers that normalise to nothing are left out and named there, and so is a question
    that has none: the result may then be empty.

    InputError for a text that may be several answers, for a column of answers that no form here
    knows, and without `dropped` for an answer that normalises to nothing: every empty answer would
    match it."""
    golds = _column(place, name, one)
    holders = [row] if place is row else [row, place]
    if place.prefix.count(".") > 1:
        holders.append(row.inside("reward_model"))
    beside = list(holders)
    for column in ("metadata", "extra_info"):
        if isinstance(row.fields.get(column), dict):
            beside.append(row.inside(column))
    for holder in beside:
        for column in filter(holder.has, _further(holder)):
            more = _column(holder, column)
            golds += [gold for gold in more if gold.strip() and gold not in golds]

    for holder in holders:
        read = _further(holder)
        if holder is place:
            read += (name,)
        elif holder is row:
            read += COLUMNS
        _nothing_more(holder, read, golds)
    _in_words(row, place, name, golds)

    kept = list(filter(normalise, golds))
    left = [show(gold) for gold in golds if gold not in kept] if golds else ["[]"]
    unanswerable = list(filter(None, map(_unanswerable, beside)))
    if unanswerable:
        kept = []
        left = unanswerable[:1]
    if left and dropped is None:
        rule = (
            "a question has a right answer, and each keeps a word after normalisation (lower case,"
            " no punctuation, no a/an/the)"
        )
        step = (
            "correct that row, or leave such answers out: ssp data convert FILE --to plain"
            " --drop-empty --out NEW"
        )
        place.fail(name, rule, left[0], step)
    if dropped is not None:
        dropped += [f"{row.path}, {row.place}: {what}" for what in left]
    return kept


def _in_words(row: Row, place: Row, name: str, golds: list[str]) -> None:
    """Refuse an answer that is the letter or the number of an option: a policy is not shown the
    options."""
    given: Any = row.fields.get("options") or row.fields.get("choices")
    if not given:
        letters = [row.fields[letter] for letter in "AB" if row.has(letter)]
        given = letters if len(letters) == 2 else []
    if isinstance(given, dict):
        given = given.get("text", list(given.values()))
    options = given if isinstance(given, list) else [given]
    texts = [option.get("text") if isinstance(option, dict) else option for option in options]
    if not any(texts):
        return
    for gold in golds:
        if _LABEL.fullmatch(gold.strip()) and gold not in map(str, texts):
            rule = (
                "a right answer is in words, not the letter of an option that the question does not"
                " show"
            )
            step = (
                f"write the option's words as {name}; remove the columns of options where the"
                " question shows them"
            )
            place.fail(name, rule, f"{show(gold)} of {show(texts)}", step)


def _further(holder: Row) -> tuple[str, ...]:
    """The columns of further right answers in `holder`."""
    return (*FURTHER, "candidate_answers") if holder.prefix == "reward_model." else FURTHER


def _column(place: Row, name: str, one: bool = True) -> list[str]:
    """Every answer in one column."""
    alone = not isinstance(place.fields.get(name), list)
    texts = place.texts(name)
    golds = []
    for text in texts:
        golds += _parts(place, name, text, alone)
    if alone and not one and golds == texts:
        rule = f"{place.prefix}{name} is a list of strings"
        place.fail(name, rule, show(texts[0]), _step(name))
    return golds


def _parts(place: Row, name: str, text: str, alone: bool) -> list[str]:
    """The answers in one text. `alone`: no list says that the text is one answer."""
    bare = text.strip()
    listed = _listed(bare)
    if listed is None and SEPARATOR in text:
        listed = text.split(SEPARATOR)
    if listed is not None:
        golds = []
        for part in listed:
            golds += _parts(place, name, part.strip(), False)
        return golds
    marks = [what for what, pattern in _SEVERAL if pattern.search(text)]
    enclosed = "," in bare and _ENCLOSED.fullmatch(bare)
    if _QUOTED.match(bare) or (alone and (enclosed or _PERHAPS.search(bare))):
        marks.append("a list, perhaps")
    if marks:
        rule = (
            f"a text is one right answer, a JSON or Python list of them, or joined by {SEPARATOR}"
        )
        place.fail(name, rule, f"{show(text)} ({marks[0]})", _step(name))
    return [text]


def _step(name: str) -> str:
    return (
        f'write {name} as a list of texts, each one answer in plain words: ["Talvik", "Talvik'
        ' town"], ["[4, 5]"]'
    )


def _listed(text: str) -> list[str] | None:
    """The strings of a list, or of verl's {"target": list}, which `text` writes as JSON or as
    Python prints it. None for any other text."""
    if text == "[]":
        return []
    if not _QUOTED.match(text) and not _TUPLE.match(text):
        return None
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            value = read(text)
            if read is ast.literal_eval and _quotes(text) != _quotes(repr(value)):
                return None  # numpy prints ['a' 'b'], which Python reads as one string
            if isinstance(value, dict) and list(value) == ["target"]:
                value = value["target"]
                if not isinstance(value, list):
                    value = [value]
            if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
                return list(value)
    return None


def _quotes(text: str) -> int:
    return text.count("'") + text.count('"')


def _nothing_more(holder: Row, read: tuple[str, ...], golds: list[str]) -> None:
    """Refuse a column that may hold further right answers, beside those that were `read`: without
    it a right answer would count as wrong."""
    for column, value in holder.fields.items():
        if not value or not _MORE.match(column) or column in read:
            continue
        texts: list[Any]
        if isinstance(value, list):
            texts = value
        elif isinstance(value, str):
            texts = _listed(value.strip()) or [value]
        elif isinstance(value, dict):
            texts = [value]
        else:
            continue
        known = {"", *map(normalise, golds)}
        if not all(isinstance(text, str) and normalise(text) in known for text in texts):
            rule = "a column that is named like right answers is one that is read"
            step = (
                f"rename it to {FURTHER[0]} where these are right answers, else take the column out"
            )
            holder.fail(column, rule, show(value), step)


def _unanswerable(holder: Row) -> str:
    """The column that says that the question has no answer, with its value; "" where none does."""
    for column in filter(holder.has, ANSWERABLE):
        truth = _TRUTHS.get(str(holder.fields[column]).strip().lower())
        if truth is not None and truth is not ANSWERABLE[column]:
            return f"{column}={show(holder.fields[column])}"
    return ""
