"""Readers of the files that users bring: corpora, targets, questions with their answers. A bad row
is refused with file, place and column. So is a right answer that normalises to nothing: every empty
answer would match it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from ssp.base.episode import Document
from ssp.base.errors import hold
from ssp.data import forms, golds
from ssp.data.containers import is_lines, rows
from ssp.data.opened import lines, parse
from ssp.data.patterns import MOST, spellings
from ssp.data.rows import Row, show

T = TypeVar("T")

MARKER = "Question:"
"""What stands before the question in a prompt of the Search-R1 family."""

_ENDS = re.compile(r"(^|\n|(?<=[?.!])\s)\s*(Context|Answer):.*", re.DOTALL)
"""What ends a question in a prompt: Search-R1's documents, the place of an answer."""

_LABELS = "contexts?|answers?|documents?|passages?|options|hint|instructions?|output"
_BEHIND = re.compile(rf"\n|\b({_LABELS}):|</?\w+>|<\||:$", re.IGNORECASE)
"""What stands in no question: other lines, labels, tags."""

_ON = re.compile(r"(\?|[a-z]{4}[.!])\s.*[^?？]$", re.DOTALL)
"""A question or a sentence, followed by one that asks nothing."""

CATEGORIES = 24
"""Values that a column of categories has at most: each is a figure."""

IDS = ("id", "_id", "qid", "question_id", "query_id", "task_id")
"""Columns of a row's id, the first that is there."""


@dataclass(frozen=True)
class Target:
    """One answer to ask about. `searches`: the number that is requested, 0 when the row does not
    say. `examples`: questions whose style is wanted."""

    id: str
    answer: str
    searches: int = 0
    examples: str = ""


@dataclass(frozen=True)
class Question:
    """One question with all its right answers (at least one) and its number of hops (0 when the row
    does not say). `id` is unique over all sources and splits: `<source>/<split>/<the row's id,
    index or number>`, without the parts that are not known. `rubric` says what a good answer has.
    `source`, `split` and `rubric` are "" when the row does not say. `category`: a column and its
    value there, as `form.backwards`, where one was asked for. `row`: see `ssp.data.told`."""

    id: str
    question: str
    answers: tuple[str, ...]
    hops: int = 0
    source: str = ""
    split: str = ""
    rubric: str = ""
    category: str = ""
    row: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def read_corpus(path: str | Path) -> list[Document]:
    """Documents of a file in row order, as `document_of` reads each. InputError for an id that
    comes twice."""
    seen: dict[str, str] = {}
    documents = []
    for row in rows(path):
        document = document_of(row)
        row.claim(document.id, seen)
        documents.append(document)
    return _not_empty(path, documents)


class Passage(NamedTuple):
    """One row of a corpus file: line `number`, and byte `start` of its JSON `raw` in the unpacked
    file."""

    document: Document
    number: int
    start: int
    raw: bytes


def stream_corpus(path: str | Path) -> Iterator[Passage]:
    """The documents of `read_corpus`, a row at a time, for files larger than memory. It does not
    look for ids that come twice."""
    path = Path(path)
    if not is_lines(path):
        for row in rows(path):
            document = document_of(row)
            fields = {"id": document.id, "contents": document.contents}
            fields |= {"url": document.url} if document.url else {}
            fields |= {"title": document.heading} if document.heading else {}
            raw = orjson.dumps(fields)
            yield Passage(document, row.index, 0, raw)
        return
    for index, (number, start, raw) in enumerate(lines(path)):
        # what is escaped inside of a text is not such bytes
        if any(raw.count(key) > 1 for key in _KEYS):
            parse(path, number, index, raw)
        yield Passage(decode(raw, path, number, index), number, start, raw)


CORPUS_IDS = ("id", "_id", "docid")
"""Names of a corpus row's id: that of most corpora, BEIR's, Pyserini's."""
_KEYS = (b'"id"', b'"_id"', b'"docid"', b'"contents"', b'"title"', b'"text"')


def decode(raw: bytes, path: Path, number: int = 0, index: int = 0) -> Document:
    """The document in `raw`, line `number` of a corpus file. InputError for a bad one. Rows in the
    usual form take a short way, since a search waits while hundreds of documents are read."""
    try:
        fields = orjson.loads(raw)
        name = fields["id"]
        body = contents = fields["contents" if "contents" in fields else "text"]
        if "contents" not in fields:
            contents = _titled(fields["title"], body)
        if type(name) is int:
            name = str(name)
        if type(name) is type(body) is str and name.strip() and body[:64].strip():
            url, title = _line(fields.get("url")), _line(fields.get("title"))
            return Document(name, contents, 0.0, url, title)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        pass
    return document_of(parse(path, number, index, raw.strip()))


def document_of(row: Row) -> Document:
    """The document of a corpus row: `{id, contents}`, `{id, title, text}`, or one of
    `forms.CORPORA`; the id has one of the names `CORPUS_IDS`. A text may be a list of its parts. A
    passage may be empty: files have such rows, and vectors that were made of a file count them.
    InputError for another row."""
    if not row.has("contents"):
        row = forms.recast(row, forms.CORPORA)
    names = [name for name in CORPUS_IDS if row.has(name)]
    bodies = [name for name in ("contents", "text") if row.has(name)]
    missing = ""
    if not names:
        missing = "id"
    elif not bodies:
        missing = "contents"
    elif bodies == ["text"] and "title" not in row.fields:
        missing = "title"
    if missing:
        rule = "a corpus row has id and contents, or id, title and text"
        step = (
            "make such rows, for example: jq -c '{id: .KEY, contents: .TEXT}' FILE > NEW.jsonl"
            " (input_line_number in place of .KEY where there is none)"
        )
        row.fail(missing, rule, row.lacks(), step)
    # An empty contents hides no text that stands beside it.
    body = next((name for name in bodies if row.fields[name] != ""), bodies[0])
    if isinstance(row.fields[body], list):
        contents = " ".join(part.strip() for part in row.texts(body))
    else:
        contents = row.text(body, empty=True)
    if body == "text":
        contents = _titled(row.text("title", empty=True), contents)
    url, title = _line(row.fields.get("url")), _line(row.fields.get("title"))
    return Document(row.key(names[0]), contents, 0.0, url, title)


def read_targets(
    path: str | Path, dropped: list[str] | None = None, several: list[str] | None = None
) -> list[Target]:
    """Targets of a file: SSP's source rows (`ground_truth`, where known `search_turns`,
    `sys_question_example`) or its processed rows (`reward_model.ground_truth.target`: one string,
    or a list of one). An id is the row's `id`, else `extra_info.index`, else the number of the row
    from 0. `dropped`: see `read_questions`. A row of several answers is refused; with a list
    `several` it is named there, and the first answer is its target."""
    seen: dict[str, str] = {}
    targets = [_target(row, seen, dropped, several) for row in rows(path)]
    return _not_empty(path, [target for target in targets if target is not None])


def read_questions(
    path: str | Path,
    source: str = "",
    split: str = "",
    seen: dict[str, str] | None = None,
    dropped: list[str] | None = None,
    file: str = "",
    by: str = "",
    columns: Mapping[str, str] | None = None,
) -> list[Question]:
    """Questions of a file in row order, each row in whichever of these forms it has, or of
    `forms.QUESTIONS`:

    Search-R1 and SSP evaluation rows (`reward_model.ground_truth.target`; the question is the
    `question` column, else what follows the one "Question:" of the user prompt), FlashRAG
    (`golden_answers`), plain (`answers` or `answer`). `source` and `split` are those of rows that
    name none. Files that share `seen` share no id. With a list `dropped`, gold answers that
    normalise to nothing are left out and named there, and so are rows that keep none. `file`: a
    name of the file that goes into the ids of rows which name another source themselves. `by`: the
    column of each question's category. InputError where it has more than CATEGORIES values.
    `columns`: our name of a column → the file's."""
    seen = {} if seen is None else seen
    questions = []
    for raw in rows(path):
        row = forms.question(forms.renamed(raw, columns or {}))
        question = _question(row, source, split, seen, dropped, file)
        if question is not None:
            questions.append(replace(question, category=row.category(by)) if by else question)
    categories = {question.category for question in questions}
    rule = f"a column whose values are told apart has at most {CATEGORIES}"
    values = f"{path}: {len(categories)} values of {by}"
    hold(len(categories) <= CATEGORIES, rule, values, "name a column of few values in eval.by")
    return _not_empty(path, questions)


def asked(prompt: str) -> str | None:
    """The question in a prompt: what follows its one "Question:", up to the context or the answer,
    stripped. None where there is none, or where other text may stand in it."""
    if prompt.count(MARKER) != 1:
        return None
    question = _ENDS.sub("", prompt.partition(MARKER)[2]).strip()
    if _BEHIND.search(question) or _ON.search(question):
        return None
    return question or None


def _line(value: Any) -> str:
    """A text of a column that a row need not have; "" for what is no text."""
    return value.strip() if type(value) is str else ""


def _titled(title: str, text: str) -> str:
    return '"' + title.strip().strip('"') + '"\n' + text


def _target(
    row: Row, seen: dict[str, str], dropped: list[str] | None, several: list[str] | None
) -> Target | None:
    """The target of a row; None where `dropped` took all its answers."""
    key = str(row.index)
    if "reward_model" in row.fields and not row.has("ground_truth"):
        place, name = row.inside("reward_model").inside("ground_truth"), "target"
        extra, least = row.maybe("extra_info"), 0
        if extra.has("index"):
            key = str(extra.count("index", least=0))
    else:
        place, name = row, "ground_truth"
        extra, least = row, 1
        if name not in row.fields:
            step = "make targets of questions: ssp data convert FILE --to ssp --out NEW"
            row.fail(name, "a target row has its answer in ground_truth", row.lacks(), step)
        row.text(name, empty=True)
    answers = golds.answers(row, place, name, dropped)
    if not answers:
        return None
    if len(answers) > 1:
        if several is None:
            step = "take the first of each row alone: ssp data convert FILE --to ssp --out NEW"
            place.fail(name, "a target row names exactly one answer", show(answers), step)
        several.append(f"{row.path}, {row.place}")
    searches = extra.count("search_turns", least) if extra.has("search_turns") else 0
    examples = extra.label("sys_question_example")
    id = row.claim(row.key("id") if row.has("id") else key, seen)
    return Target(id, answers[0], searches, examples)


def _question(
    row: Row, source: str, split: str, seen: dict[str, str], dropped: list[str] | None, file: str
) -> Question | None:
    """The question of a row; None where `dropped` took all its answers."""
    extra = row.maybe("extra_info")
    metadata = row if row.has("reward_model") else row.maybe("metadata")
    hops = 0
    if not row.has("reward_model"):
        stated = [place for place in (metadata, row) if place.has("hops")]
        hops = stated[0].count("hops", least=0) if stated else 0
    source = row.label("data_source") or metadata.label("data_source") or source
    split = extra.label("split") or row.label("split") or metadata.label("split") or split

    key = _key(row, extra)
    scope = "".join(f"{part}/" for part in (source, split) if part)
    if file not in ("", source):
        key = f"{scope}{file}/{key.removeprefix(scope)}"
    elif not key.startswith(scope):
        key = scope + key
    id = row.claim(key, seen, "give each file a name: --source A,B")

    place = row
    name = next(filter(row.has, golds.COLUMNS), "golden_answers")
    if row.has("reward_model"):
        model = row.inside("reward_model")
        if isinstance(model.fields.get("ground_truth"), dict):
            place, name = model.inside("ground_truth"), "target"
        elif model.has("ground_truth") or not row.has("golden_answers"):
            place, name = model, "ground_truth"
    if name not in place.fields:
        rule = "a row has its right answers in answer, answers, golden_answers or reward_model"
        step = (
            "name its columns: ssp data convert FILE --columns question=COLUMN,answer=COLUMN --to"
            " plain --out NEW (what is read: ssp data forms); rows without a question are targets"
            " (data.targets)"
        )
        place.fail(name, rule, place.lacks(), step)
    if row.form == forms.PATTERNS:
        spelled = _spelled(row, dropped)
        if not spelled:
            return None
        row = place = replace(row, fields={**row.fields, "answers": spelled})
    answers = golds.answers(row, place, name, dropped, one=not name.endswith("answers"))
    text = _text(row, extra)
    rubric = row.label("rubric") or metadata.label("rubric") or extra.label("rubric")
    return Question(id, text, tuple(answers), hops, source, split, rubric) if answers else None


def _spelled(row: Row, dropped: list[str] | None) -> list[str]:
    """The texts of a row's answer patterns; none where `dropped` names the row, since one of them
    matches endlessly many."""
    try:
        return [text for pattern in row.texts("answers") for text in spellings(pattern)]
    except ValueError as error:
        if dropped is None:
            rule = f"a right answer in a pattern has at most {MOST} spellings"
            step = "leave such rows out: ssp data convert ... --drop-empty, or write a list"
            row.fail("answer_patterns", rule, str(error), step)
        dropped.append(f"{row.path}, {row.place}: {error}")
        return []


def _key(row: Row, extra: Row) -> str:
    """What tells a row from the others of its file."""
    for place, names in ((row, IDS), (extra, ("index", "id"))):
        for name in filter(place.has, names):
            return place.key(name)
    return str(row.index)


def _text(row: Row, extra: Row) -> str:
    """The question itself. SSP's evaluation rows have it in extra_info; its processed rows have
    "dummy" there."""
    if row.has("question") or not row.has("prompt"):
        return row.text("question").strip()
    if extra.has("question") and extra.text("question") != "dummy":
        return extra.text("question").strip()
    prompt = row.fields["prompt"]
    said = []
    for turn in prompt if isinstance(prompt, list) else ():
        if isinstance(turn, dict) and turn.get("role") == "user":
            said.append(turn.get("content"))
    question = asked(said[-1]) if said and isinstance(said[-1], str) else None
    if question is None:
        rule = (
            f'without a question column the user prompt has one "{MARKER}" and nothing but the'
            " question behind it"
        )
        step = "give each row its question in a column `question`"
        row.fail("prompt", rule, show(said[-1:] or prompt, 600), step)
    return question


def _not_empty(path: str | Path, kept: list[T]) -> list[T]:
    hold(kept, "a data file has at least one row", f"{path}: none is kept", "check the file")
    return kept
