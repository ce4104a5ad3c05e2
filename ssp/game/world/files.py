"""A world as files, in the formats of real data: corpus.jsonl (Search-R1), targets.jsonl (SSP), eval.jsonl and
questions.jsonl (FlashRAG), which share no question. A cached folder is complete and unaltered (checksums) or made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ssp.base import cache
from ssp.base.errors import InputError
from ssp.base.files import digest
from ssp.base.seeds import derive, generator
from ssp.game.world.generator import MAX_HOPS, Question, World

FORMAT_VERSION = 1
EVAL_PER_HOP = 512
TRAIN_PER_HOP = {1: 440, 2: 1500, 3: 1500, 4: 1500}
"""Questions a hop in questions.jsonl; a world has about 1000 of one hop, the rest has more than enough."""
PREFIX = "world:"
SEEDS = {"train": 11, "heldout": 12}
"""Worlds that have a name."""
KINDS = ("corpus", "targets", "eval", "questions")
"""What a world's folder holds, a file each."""
_MANIFEST = "world.json"


def ensure(seed: int, cache_root: Path | None = None) -> dict[str, Path]:
    """The files of a world by kind, made under `cache_root` (default: `ssp.base.cache.root()`) when absent or altered."""
    folder = (cache_root or cache.root()) / "worlds" / f"v{FORMAT_VERSION}-{seed}"
    if not _sound(folder):
        cache.put(folder, lambda made: _write(made, World(seed)), _sound)
    return _files(folder)


def _files(folder: Path) -> dict[str, Path]:
    return {kind: folder / f"{kind}.jsonl" for kind in KINDS}


def world_seed(path: str) -> int | None:
    """Seed of the world that `path` names: `world:train`, `world:heldout` or `world:<seed>`; None for another path."""
    if not path.startswith(PREFIX):
        return None
    name = path.removeprefix(PREFIX)
    if name not in SEEDS and not name.isdecimal():
        rule = "a generated world is called world:train, world:heldout or world:<seed>"
        raise InputError(rule, path, "use one of these names")
    return SEEDS[name] if name in SEEDS else int(name)


def oracle(path: str) -> World | None:
    """The world that `path` names; None for another path."""
    seed = world_seed(path)
    return None if seed is None else World(seed)


def resolve(path: str, kind: str, cache_root: Path | None = None) -> str:
    """The file behind a data path. `kind`: corpus, targets, eval or questions. A path of no world comes back as is."""
    seed = world_seed(path)
    if seed is not None and kind not in KINDS:
        raise InputError(f"a generated world has files of: {', '.join(KINDS)}", f"{path} for {kind}", "give a file")
    return path if seed is None else str(ensure(seed, cache_root)[kind])


def _sound(folder: Path) -> bool:
    """True when the manifest is there and every file has the checksum that it names."""
    try:
        sums = json.loads((folder / _MANIFEST).read_text())["sha256"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False  # none, or a torn or foreign one: the entry is made anew
    return all(file.is_file() and digest(file) == sums.get(file.name) for file in _files(folder).values())


def _write(folder: Path, world: World) -> None:
    kept: list[Question] = []  # one draw for evaluation and training, cut in two
    spare: list[Question] = []
    for hops in range(1, MAX_HOPS + 1):
        drawn = world.questions(hops, EVAL_PER_HOP + TRAIN_PER_HOP[hops], derive(world.seed, "files"))
        kept += drawn[:EVAL_PER_HOP]
        spare += drawn[EVAL_PER_HOP:]
    corpus = [{"id": document.id, "contents": document.contents} for document in world.documents()]
    rows = (corpus, _targets(world), _questions(world, "eval", kept), _questions(world, "train", spare))
    for file, lines in zip(_files(folder).values(), rows, strict=True):
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    sums = {file.name: digest(file) for file in _files(folder).values()}
    (folder / _MANIFEST).write_text(json.dumps({"seed": world.seed, "format": FORMAT_VERSION, "sha256": sums}))


def _targets(world: World) -> Iterable[dict[str, object]]:
    """One row an entity that can be an answer, with three example questions of other answers and a search count."""
    rng = generator(world.seed, "targets")
    pool = [question for hops in (1, 2, 3) for question in world.questions(hops, 200, derive(world.seed, "examples"))]
    for target in world.targets():
        others = [q.text for q in pool if target not in (q.answer, q.text.split()[0])]
        examples = [others[i] for i in rng.choice(len(others), 3, replace=False)]
        yield {
            "sys_question_example": "\n".join(f"Question {k}: {text}" for k, text in enumerate(examples, 1)),
            "ground_truth": target,
            "search_turns": str(rng.integers(1, 4)),
        }


def _questions(world: World, prefix: str, questions: list[Question]) -> Iterable[dict[str, object]]:
    for i, question in enumerate(questions):
        yield {
            "id": f"{prefix}-{question.hops}hop-{i}",
            "question": question.text,
            "golden_answers": [question.answer],
            "metadata": {"hops": question.hops, "chain": [list(fact) for fact in question.chain]},
        }
