"""Several question files as one: which split of each (FlashRAG's folders), whose rows, and that no two share an id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ssp.base.errors import InputError
from ssp.data.readers import Question, Target, read_questions, read_targets
from ssp.data.rows import rows

SPLITS = ("test", "dev", "train")
"""The order in which a test set is looked for (reference seeds.md 1.1.5)."""

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")


@dataclass(frozen=True)
class Part:
    """One source file: its path, the names of rows that say none, and the preferred splits that it does not have."""

    path: Path
    source: str = ""
    split: str = ""
    missing: tuple[str, ...] = ()


def parts(paths: Sequence[str | Path], sources: Sequence[str] = (), splits: Sequence[str] = ()) -> list[Part]:
    """One part a path: a file, or a folder of split files, of which the first of `splits` that exists is taken.

    `sources`: a name a path; default: a folder's own name, for a file none. A file's rows take at most one split name.
    """
    if sources and len(sources) != len(paths):
        raise InputError(
            "--source has one name for each file", f"{len(sources)} for {len(paths)}", "name them in order"
        )
    found = []
    for number, path in enumerate(map(Path, paths)):
        source = sources[number] if sources else ""
        if not path.is_dir():
            if len(splits) > 1:
                rule = "rows of one file have one split; several are a folder's"
                raise InputError(rule, ", ".join(splits), "name one")
            found.append(Part(path, source, "".join(splits)))
            continue
        wanted = tuple(splits) or SPLITS
        held = [
            (split, path / (split + end)) for split in wanted for end in ENDINGS if (path / (split + end)).is_file()
        ]
        if not held:
            names = ", ".join(f"{split}.jsonl" for split in wanted)
            raise InputError(f"a folder of questions holds one of {names}", path, "check the folder, or name --split")
        split, file = held[0]
        found.append(Part(file, source or path.resolve().name, split, wanted[: wanted.index(split)]))
    return found


def merge(sources: Sequence[Part], dropped: list[str] | None = None) -> list[list[Question]]:
    """The questions of each part. InputError when two of all rows share an id. `dropped`: see `read_questions`."""
    seen: dict[str, str] = {}
    return [read_questions(part.path, part.source, part.split, seen, dropped) for part in sources]


def targets(part: Part, dropped: list[str] | None = None) -> list[Target]:
    """Targets of SSP's rows; of questions, the first right answer of each."""
    first = next(rows(part.path), None)
    if first is not None and (first.has("ground_truth") or first.maybe("extra_info").label("question") == "dummy"):
        return read_targets(part.path)
    asked = read_questions(part.path, part.source, part.split, dropped=dropped)
    return [Target(question.id, question.answers[0]) for question in asked]
