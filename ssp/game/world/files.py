"""A world as files, in the formats of real data: corpus.jsonl (Search-R1), targets.jsonl (SSP),
eval.jsonl and questions.jsonl (FlashRAG), which share no question. Checksums tell whether a cached
folder is whole and unaltered; else it is made anew."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

from ssp.base import cache
from ssp.base.episode import Document
from ssp.base.errors import hold
from ssp.base.extras import extra
from ssp.base.files import digest
from ssp.base.seeds import derive, generator
from ssp.game.world.generator import MAX_HOPS, World, WorldQuestion

FORMAT_VERSION = 1
EVAL_PER_HOP = 512
TRAIN_PER_HOP = {1: 440, 2: 1500, 3: 1500, 4: 1500}
"""Questions of each hop count in questions.jsonl. A world has about 1000 of one hop, and more than
enough of the others."""
PREFIX = "world:"
SEEDS = {"train": 11, "heldout": 12}
"""Worlds that have a name."""
KINDS = ("corpus", "targets", "eval", "questions")
"""The files of a world's folder."""
OF_EXTRAS = {
    "world:english": "english",
    "world:english-train": "english",
    "world:fanoutqa": "english",
}
"""Name of a world → the extra that makes it; its module `files` has `resolve` and `oracle`."""
_MANIFEST = "world.json"


class Oracle(Protocol):
    """What a world knows of a question by its text: for metrics and for people, never for a
    reward."""

    def answer(self, question: str) -> str | None: ...
    def hops(self, question: str) -> int: ...
    def is_junk(self, question: str, target: str) -> bool: ...

    def truths(self, question: str) -> Sequence[str] | None:
        """All right answers in all their spellings; None for a text that cannot be read."""

    def classes(self, question: str) -> Sequence[str]:
        """The classes of a question that figures tell apart: `2hop`, `form.backwards`. None for a
        text that cannot be read."""


def ensure(seed: int, cache_root: Path | None = None) -> dict[str, Path]:
    """The files of a world by kind, made under `cache_root` (default: `ssp.base.cache.root()`) when
    absent or altered."""
    name = f"v{FORMAT_VERSION}-{seed}"
    return kept(name, KINDS, lambda folder: _write(folder, World(seed)), cache_root)


def kept(
    name: str, kinds: Iterable[str], write: Callable[[Path], None], cache_root: Path | None
) -> dict[str, Path]:
    """The files of the cached folder `name` by kind, as `ensure`; `write` makes them in a folder."""
    folder = (cache_root or cache.root()) / "worlds" / name
    if not _sound(folder):
        cache.put(folder, write, _sound)
    return {kind: folder / f"{kind}.jsonl" for kind in kinds}


def is_world(path: str) -> bool:
    """Whether `path` names a world: `world:train`, `world:heldout`, `world:<seed>`, or one of
    OF_EXTRAS. InputError for a world that has no such name."""
    return path in OF_EXTRAS or _seed(path) is not None


def _seed(path: str) -> int | None:
    """Seed of the generated world that `path` names; None for another path."""
    if not path.startswith(PREFIX):
        return None
    name = path.removeprefix(PREFIX)
    others = ", ".join(OF_EXTRAS)
    rule = f"a world is called world:train, world:heldout or world:<seed>, or {others}"
    hold(name in SEEDS or name.isdecimal(), rule, path, "use one of these names")
    return SEEDS[name] if name in SEEDS else int(name)


def oracle(path: str, natural: bool) -> Oracle | None:
    """The world that `path` names; None where there is none, or its questions are in `natural`
    language when that is not asked for, or the other way round."""
    if path in OF_EXTRAS:
        made: Oracle | None = _other(path).oracle() if natural else None
        return made
    seed = _seed(path)
    return None if seed is None or natural else World(seed)


def resolve(path: str, kind: str, cache_root: Path | None = None) -> str:
    """The file behind a data path. `kind`: corpus, targets, eval, questions, or traces, which the
    world of an extra may have. A path that names no world is returned as it is."""
    if path in OF_EXTRAS:
        return str(_other(path).resolve(path, kind, cache_root))
    seed = _seed(path)
    if seed is None:
        return path
    rule = f"a generated world has {', '.join(KINDS)}"
    hold(kind in KINDS, rule, f"{path} as {kind}", "name world:english")
    return str(ensure(seed, cache_root)[kind])


def _other(path: str) -> ModuleType:
    return extra(OF_EXTRAS[path], path, "files")


def _sound(folder: Path) -> bool:
    """Whether the manifest is there and every file has the checksum that it names."""
    try:
        sums = json.loads((folder / _MANIFEST).read_text())["sha256"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False  # none, or a torn or foreign one: the entry is made anew
    for name, sha256 in sums.items():
        file = folder / name
        if not file.is_file() or digest(file) != sha256:
            return False
    return bool(sums)


def _write(folder: Path, world: World) -> None:
    held = []  # one draw for evaluation and training, cut in two
    spare = []
    for hops in range(1, MAX_HOPS + 1):
        number = EVAL_PER_HOP + TRAIN_PER_HOP[hops]
        drawn = world.questions(hops, number, derive(world.seed, "files"))
        held += drawn[:EVAL_PER_HOP]
        spare += drawn[EVAL_PER_HOP:]
    rows = {
        "corpus": corpus_rows(world.documents()),
        "targets": _targets(world),
        "eval": question_rows("eval", held),
        "questions": question_rows("train", spare),
    }
    save(folder, rows, {"seed": world.seed})


def save(
    folder: Path, rows: Mapping[str, Iterable[dict[str, object]]], marks: Mapping[str, object]
) -> None:
    """Write a file of each kind, and the manifest with their checksums."""
    sums = {}
    for kind, lines in rows.items():
        file = folder / f"{kind}.jsonl"
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        file.write_text(text, encoding="utf-8")
        sums[file.name] = digest(file)
    manifest = {**marks, "format": FORMAT_VERSION, "sha256": sums}
    (folder / _MANIFEST).write_text(json.dumps(manifest))


def corpus_rows(documents: Iterable[Document]) -> Iterable[dict[str, object]]:
    """Rows of a corpus file."""
    return ({"id": document.id, "contents": document.contents} for document in documents)


def _targets(world: World) -> Iterable[dict[str, object]]:
    """Rows of the entities that can be an answer, each with three example questions that have other
    answers, and a number of searches."""
    rng = generator(world.seed, "targets")
    pool = []
    for hops in (1, 2, 3):
        pool += world.questions(hops, 200, derive(world.seed, "examples"))
    for target in world.targets():
        others = []
        for question in pool:
            entity = question.text.split()[0]
            if target not in (question.answer, entity):
                others.append(question.text)
        drawn = rng.choice(len(others), 3, replace=False)
        examples = [f"Question {number}: {others[at]}" for number, at in enumerate(drawn, 1)]
        yield {
            "sys_question_example": "\n".join(examples),
            "ground_truth": target,
            "search_turns": str(rng.integers(1, 4)),
        }


def question_rows(
    prefix: str,
    questions: Iterable[WorldQuestion],
    answers: Callable[[str], list[str]] = lambda answer: [answer],
) -> Iterable[dict[str, object]]:
    """Rows of a question file, whose ids begin with `prefix`. `answers`: all right spellings of an
    answer."""
    for number, question in enumerate(questions):
        chain = [list(fact) for fact in question.chain]
        form = {"form": question.form} if question.form else {}
        yield {
            "id": f"{prefix}-{question.hops}hop-{number}",
            "question": question.text,
            "golden_answers": answers(question.answer),
            "metadata": {"hops": question.hops, **form, "chain": chain},
        }
