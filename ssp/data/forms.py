"""The forms in which others publish questions, corpora and predictions, as tables: by which columns a
form is known, and which of them become which of ours. The readers take rows in our names alone; the
command `ssp data forms` shows these tables, and the tests go through them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ssp.data.rows import Row, show


@dataclass(frozen=True)
class RowForm:
    """One form. `known`: the paths that its rows have. `takes`: our column → the path whose value it
    gets, or several joined by " + ". `leaves`: columns that say something else and are left out.
    `only`: further columns that it may have; any others make it another form. `said`: makes our
    `prediction` of all columns. `blank`: null counts as a value. A path is names joined by dots,
    `*` for each item of a list."""

    name: str
    known: tuple[str, ...]
    takes: Mapping[str, str] = field(default_factory=dict)
    leaves: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    said: Callable[[Mapping[str, Any]], str | None] | None = None
    blank: bool = False

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Whether these columns are of this form."""
        if self.only and not {*fields} <= {*self.known, *self.only}:
            return False
        return all(self.values(fields, path) for path in self.known)

    def values(self, fields: Mapping[str, Any], path: str) -> list[Any]:
        """What stands at `path`; nothing where a name on the way is not there."""
        reached: list[Any] = [fields]
        for name in path.split("."):
            inner: list[Any] = []
            for value in reached:
                if name == "*":
                    inner += value if isinstance(value, list) else ()
                elif isinstance(value, Mapping) and name in value:
                    inner.append(value[name])
            reached = inner
        return [value for value in reached if self.blank or value is not None]


PATTERNS = "regular expressions"

QUESTIONS = (
    RowForm(
        "PopQA",
        ("subj", "obj", "question", "possible_answers"),
        {"answers": "possible_answers"},
        leaves=("o_aliases", "s_aliases"),
    ),
    RowForm(
        "TriviaQA",
        ("question", "answer.value", "answer.aliases"),
        {"id": "question_id", "answers": "answer.value + answer.aliases"},
    ),
    RowForm(
        "TriviaQA's own JSON",
        ("Question", "Answer.Value"),
        {
            "id": "QuestionId",
            "question": "Question",
            "answers": "Answer.Value + Answer.Aliases + Answer.HumanAnswers",
        },
    ),
    RowForm("SQuAD", ("question", "answers.text"), {"answers": "answers.text"}),
    RowForm("SQuAD's own JSON", ("question", "answers.*.text"), {"answers": "answers.*.text"}),
    RowForm(
        "KILT", ("input", "output.*.answer"), {"question": "input", "answers": "output.*.answer"}
    ),
    RowForm("GAIA", ("Question", "Final answer"), {"id": "task_id", "answer": "Final answer"}),
    RowForm("FRAMES, Bamboogle", ("Answer",), {"answer": "Answer"}),
    RowForm(
        "SimpleQA",
        ("metadata", "problem", "answer"),
        {"question": "problem"},
        leaves=("metadata",),
    ),
    RowForm(PATTERNS, ("answer_patterns",), {"answers": "answer_patterns"}),
)
"""Forms of questions; the first that fits is the row's. Others are read by the names of our columns."""

ASKED = ("problem", "query", "input", "Question", "Prompt", "instruction")
"""Names of a question's column, where it is not `question`: a row has one of them."""

CORPORA = (
    RowForm(
        "KILT",
        ("wikipedia_id", "wikipedia_title", "text"),
        {"id": "wikipedia_id", "title": "wikipedia_title"},
    ),
    RowForm("MS MARCO", ("pid", "passage"), {"id": "pid", "contents": "passage"}),
    RowForm("MS MARCO documents", ("docid", "title", "body"), {"text": "body"}),
    RowForm("LangChain", ("id", "page_content"), {"contents": "page_content"}),
    RowForm(
        "BrowseComp-Plus; text without a title",
        ("text",),
        {"contents": "text"},
        only=("id", "_id", "docid", "url", "metadata"),
    ),
)
"""Forms of passages, beside {id, contents} and {id, title, text}."""


def _tagged(fields: Mapping[str, Any]) -> str | None:
    """The last <answer> of a whole response."""
    given = re.findall(r"<answer>(.*?)</answer>", str(fields["output"]), re.DOTALL)
    return str(given[-1]).strip() if given else None


def _exact(fields: Mapping[str, Any]) -> str | None:
    """What follows "Exact Answer:" in the last text of a run that was completed."""
    said = [step for step in fields["result"] if isinstance(step, dict)][-1:]
    if fields["status"] != "completed" or not said or said[0].get("type") != "output_text":
        return None
    given = re.search(r"Exact Answer:[*\s]*(.+)", str(said[0].get("output")))
    return given[1].strip(" *") if given else None


PREDICTIONS = (
    RowForm("FlashRAG", ("output.pred",), {"prediction": "output.pred"}, blank=True),
    RowForm(
        "FlashRAG, output.prediction",
        ("output.prediction",),
        {"prediction": "output.prediction"},
        blank=True,
    ),
    RowForm("MuSiQue", ("predicted_answer",), {"prediction": "predicted_answer"}, blank=True),
    RowForm(
        "R1-Searcher",
        ("answer", "pred_ans"),
        {"golden_answers": "answer", "prediction": "pred_ans"},
    ),
    RowForm("HotpotQA", ("answer", "sp"), {"prediction": "answer"}),
    RowForm("BrowseComp-Plus", ("query_id", "status", "result"), {"id": "query_id"}, said=_exact),
    RowForm(
        "verl, golds as Search-R1's",
        ("input", "output", "step", "gts.target"),
        {"golden_answers": "gts.target"},
        said=_tagged,
    ),
    RowForm("verl", ("input", "output", "step", "gts"), {"golden_answers": "gts"}, said=_tagged),
    RowForm("pred", ("pred",), {"prediction": "pred"}, blank=True),
)
"""Forms of predictions, beside {id, prediction} and {golden_answers, prediction}."""


def table() -> list[tuple[str, str, str]]:
    """What is read, the form's name, and its columns, each with ours that it becomes, in lines."""
    of = {"questions": QUESTIONS, "corpora": CORPORA, "predictions": PREDICTIONS}
    told = []
    for what, forms in of.items():
        for form in forms:
            ours = {path: name for name, paths in form.takes.items() for path in paths.split(" + ")}
            paths = dict.fromkeys([*form.known, *ours])
            shown = [f"{path} -> {ours[path]}" if path in ours else path for path in paths]
            told.append((what, form.name, ", ".join(shown)))
    return told


def recast(row: Row, forms: Sequence[RowForm]) -> Row:
    """The row in our names: that of the first form that fits, else as it is."""
    form = next((form for form in forms if form.fits(row.fields)), None)
    if form is None:
        return row
    taken: dict[str, Any] = {}
    used = {*form.leaves}
    for ours, theirs in form.takes.items():
        several: list[Any] = []
        for path in theirs.split(" + "):
            several += form.values(row.fields, path)
            used.add(path.partition(".")[0])
        if "*" in theirs or "+" in theirs:
            items: list[Any] = []
            taken[ours] = items
            for value in several:
                listed = value if isinstance(value, list) else [value]
                items += [item for item in listed if item not in items]
        elif several:
            taken[ours] = several[0]
    for name in filter(row.has, {*taken} - used - {"id"}):
        rule = f"a row of the form {form.name} has no column {name} of its own"
        row.fail(name, rule, show(row.fields[name]), f"take out {name}, or {form.takes[name]}")
    if form.said is not None:
        taken["prediction"] = form.said(row.fields)
    kept = {name: value for name, value in row.fields.items() if name not in used}
    if row.has("id"):
        taken.pop("id", None)
    return replace(row, fields={**kept, **taken}, form=form.name)


def question(row: Row) -> Row:
    """The row of a question in our names. Refused where it has two columns that may be the question."""
    row = recast(row, QUESTIONS)
    if row.has("question") or row.has("prompt"):
        return row
    named = [name for name in ASKED if row.has(name)]
    if len(named) > 1:
        rule = f"a row has its question in question, or in one of {', '.join(ASKED)}"
        row.fail(
            "question",
            rule,
            show(named),
            "name it: ssp data convert FILE --columns question=COLUMN --to plain --out NEW",
        )
    if not named:
        return row
    fields = dict(row.fields)
    fields["question"] = fields.pop(named[0])
    return replace(row, fields=fields)


def renamed(row: Row, columns: Mapping[str, str]) -> Row:
    """The row with the column `columns[ours]` as `ours`. Refused without such a column."""
    fields = dict(row.fields)
    for ours, theirs in columns.items():
        if theirs not in fields:
            rule = "a column that --columns names is there"
            row.fail(theirs, rule, row.lacks(), "name one of these")
        fields[ours] = fields.pop(theirs)
    return replace(row, fields=fields)
