"""Which files a command converts or merges: single ones, and those of a folder of splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ssp.base.errors import InputError, hold
from ssp.data.containers import ENDINGS, rows
from ssp.data.opened import PACKED
from ssp.data.readers import Question, Target, read_questions, read_targets

SPLITS = ("test", "dev", "train")
"""The order in which a test set is looked for (reference seeds.md 1.1.5)."""

ALSO = {"dev": ("dev", "validation")}
"""The names that the files of a split may have, where it is not its own alone."""


@dataclass(frozen=True)
class Part:
    """One source file. `source` and `split` are those of rows that name none; `missing` are the
    preferred splits that the folder does not have; `name` is what the user called it, if so."""

    path: Path
    source: str = ""
    split: str = ""
    missing: tuple[str, ...] = ()
    name: str = ""


def parts(
    paths: Sequence[str | Path], sources: Sequence[str] = (), splits: Sequence[str] = ()
) -> list[Part]:
    """One part a path: a file, or a folder of split files, of which the first of `splits` that
    exists is taken. `sources`: a name a path; by default a folder has its own name, and a file
    none. The rows of a file have one split at most."""
    if sources and len(sources) != len(paths):
        names = f"{len(sources)} for {len(paths)}"
        raise InputError("--source has one name for each file", names, "name them in order")
    taken = []
    for number, path in enumerate(map(Path, paths)):
        name = sources[number] if sources else ""
        if path.is_dir():
            taken.append(_part_of_folder(path, name, tuple(splits) or SPLITS))
        else:
            rule = "rows of one file have one split; several are a folder's"
            hold(len(splits) <= 1, rule, ", ".join(splits), "name one")
            taken.append(Part(path, name, "".join(splits), name=name))
    return taken


def _part_of_folder(folder: Path, name: str, splits: tuple[str, ...]) -> Part:
    named = name or folder.resolve().name
    for number, split in enumerate(splits):
        before = splits[:number]
        for stem in ALSO.get(split, (split,)):
            for ending in product(ENDINGS, ("", *PACKED)):
                file = folder / (stem + "".join(ending))
                if file.is_file():
                    return Part(file, named, split, before, name)
            for place in (folder, folder / "data"):
                shards = place / f"{stem}-*-of-*.parquet"
                if any(place.glob(shards.name)):
                    return Part(shards, named, split, before, name)
    names = ", ".join(f"{split}.jsonl" for split in splits)
    rule = f"a folder of questions holds one of {names}"
    raise InputError(rule, folder, "check the folder, or name --split")


def merge(
    sources: Sequence[Part],
    dropped: list[str] | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[list[Question]]:
    """The questions of each part. InputError when two of all rows share an id. `dropped`,
    `columns`: see `read_questions`."""
    seen: dict[str, str] = {}
    questions = []
    for part in sources:
        scope = part.source, part.split
        read = read_questions(part.path, *scope, seen, dropped, part.name, columns=columns)
        questions.append(read)
    return questions


def targets(
    part: Part,
    dropped: list[str] | None,
    several: list[str],
    columns: Mapping[str, str] | None = None,
) -> list[Target]:
    """Targets of SSP's rows, or of questions: the first right answer of each. `several` gets the
    places of those that have others."""
    first = next(rows(part.path), None)
    if first is not None and (
        first.has("ground_truth") or first.maybe("extra_info").label("question") == "dummy"
    ):
        return read_targets(part.path, dropped, several)
    scope = part.source, part.split
    questions = read_questions(part.path, *scope, dropped=dropped, columns=columns)
    several += [question.id for question in questions if len(question.answers) > 1]
    return [Target(question.id, question.answers[0]) for question in questions]
