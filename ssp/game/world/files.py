"""A world as files, in the formats of real data: corpus.jsonl (Search-R1), targets.jsonl (SSP),
eval.jsonl and questions.jsonl (FlashRAG), which share no question. A cached folder is complete and
unaltered (checksums) or made anew."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from ssp.base import cache
from ssp.base.errors import hold
from ssp.base.files import digest
from ssp.base.seeds import derive, generator
from ssp.game.world import fanoutqa, sources
from ssp.game.world.english import HELDOUT, TRAIN, English
from ssp.game.world.generator import MAX_HOPS, Question, World
from ssp.game.world.traces import Script

FORMAT_VERSION = 1
ENGLISH_VERSION = 13
"""Raised when other files come from the same packages."""
EVAL_PER_HOP = 512
TRAIN_PER_HOP = {1: 440, 2: 1500, 3: 1500, 4: 1500}
"""Questions a hop in questions.jsonl; a world has about 1000 of one hop, the rest has more than
enough."""
PREFIX = "world:"
SEEDS = {"train": 11, "heldout": 12}
"""Worlds that have a name."""
KINDS = ("corpus", "targets", "eval", "questions")
"""What a world's folder holds, a file each."""
ENGLISH: dict[str, dict[str, str]] = {
    "world:english": {},
    "world:english-train": {"eval": "eval-train"},
    "world:fanoutqa": {"eval": "eval-fanoutqa"},
}
"""Names of the English world → what it reads of another file: questions of the training split or
FanOutQA's."""
ENGLISH_KINDS = (*KINDS, "eval-train", "traces")
ENGLISH_PER_HOP = {"eval": {1: 256, 2: 256, 3: 256}, "eval-train": {1: 128, 2: 128, 3: 128}}
ENGLISH_TRAIN_PER_HOP = {1: 900, 2: 3600, 3: 900}
_MANIFEST = "world.json"


class Oracle(Protocol):
    """What a world knows of a question's text: for metrics and for people, never for a reward."""

    def answer(self, question: str) -> str | None: ...
    def hops(self, question: str) -> int: ...
    def is_junk(self, question: str, target: str) -> bool: ...


def ensure(seed: int, cache_root: Path | None = None) -> dict[str, Path]:
    """The files of a world by kind, made under `cache_root` (default: `ssp.base.cache.root()`) when
    absent or altered."""
    return _ensure(
        f"v{FORMAT_VERSION}-{seed}", KINDS, lambda made: _write(made, World(seed)), cache_root
    )


def english(cache_root: Path | None = None) -> dict[str, Path]:
    """The files of the English world, as `ensure`; they hold what is installed. InputError where
    nothing is."""
    found = {**sources.versions(), **fanoutqa.versions()}
    kinds = (*ENGLISH_KINDS, *(["eval-fanoutqa"] if fanoutqa.versions() else []))
    # What the packages and the phrasings say; what is done with them is ENGLISH_VERSION.
    mark = derive(
        ENGLISH_VERSION,
        *(f"{name} {version}" for name, version in found.items()),
        sources.grammar(),
    )
    return _ensure(
        f"v{ENGLISH_VERSION}-english-{mark % 10**8:08d}", kinds, _write_english, cache_root
    )


def _ensure(
    name: str, kinds: Iterable[str], write: Callable[[Path], None], cache_root: Path | None
) -> dict[str, Path]:
    folder = (cache_root or cache.root()) / "worlds" / name
    if not _sound(folder):
        cache.put(folder, write, _sound)
    return {kind: folder / f"{kind}.jsonl" for kind in kinds}


def is_world(path: str) -> bool:
    """Whether `path` names a world: `world:train`, `world:heldout`, `world:<seed>`, or one of
    ENGLISH. InputError for a world that has no such name."""
    return path in ENGLISH or _seed(path) is not None


def _seed(path: str) -> int | None:
    """Seed of the generated world that `path` names; None for another path."""
    if not path.startswith(PREFIX):
        return None
    name = path.removeprefix(PREFIX)
    rule = f"a world is called world:train, world:heldout or world:<seed>, or {', '.join(ENGLISH)}"
    hold(name in SEEDS or name.isdecimal(), rule, path, "use one of these names")
    return SEEDS[name] if name in SEEDS else int(name)


def oracle(path: str, natural: bool) -> Oracle | None:
    """The world that `path` names, when its questions are in `natural` language, or not, as asked;
    else None."""
    if natural:
        return English() if path in ENGLISH else None
    seed = None if path in ENGLISH else _seed(path)
    return None if seed is None else World(seed)


def resolve(path: str, kind: str, cache_root: Path | None = None) -> str:
    """The file behind a data path. `kind`: corpus, targets, eval, questions, or traces, which the
    English world has. A path of no world comes back as is."""
    if path in ENGLISH:
        made, wanted = english(cache_root), ENGLISH[path].get(kind, kind)
        rule = f"{path} needs the package {fanoutqa.PACKAGE}"
        hold(wanted in made, rule, "not installed", "bash launch/setup.sh english")
        return str(made[wanted])
    seed = _seed(path)
    if seed is None:
        return path
    hold(
        kind in KINDS,
        f"a generated world has {', '.join(KINDS)}",
        f"{path} as {kind}",
        "name world:english",
    )
    return str(ensure(seed, cache_root)[kind])


def _sound(folder: Path) -> bool:
    """True when the manifest is there and every file has the checksum that it names."""
    try:
        sums = json.loads((folder / _MANIFEST).read_text())["sha256"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False  # none, or a torn or foreign one: the entry is made anew
    return bool(sums) and all(
        (folder / name).is_file() and digest(folder / name) == sum for name, sum in sums.items()
    )


def _write(folder: Path, world: World) -> None:
    kept: list[Question] = []  # one draw for evaluation and training, cut in two
    spare: list[Question] = []
    for hops in range(1, MAX_HOPS + 1):
        drawn = world.questions(
            hops, EVAL_PER_HOP + TRAIN_PER_HOP[hops], derive(world.seed, "files")
        )
        kept += drawn[:EVAL_PER_HOP]
        spare += drawn[EVAL_PER_HOP:]
    rows = {
        "targets": _targets(world),
        "eval": _questions("eval", kept),
        "questions": _questions("train", spare),
    }
    _save(folder, {"corpus": _corpus(world), **rows}, {"seed": world.seed})


def _write_english(folder: Path) -> None:
    world = English()

    def drawn(
        part: str, prefix: str, per_hop: dict[int, int], seed: str
    ) -> Iterable[dict[str, object]]:
        draws = [world.questions(part, hops, n, derive(0, seed)) for hops, n in per_hop.items()]
        return _questions(prefix, [question for draw in draws for question in draw], world.answers)

    script = Script(world)
    rows: dict[str, Iterable[dict[str, object]]] = {
        "corpus": _corpus(world),
        "targets": script.aims(),
        "eval": drawn(HELDOUT, "heldout", ENGLISH_PER_HOP["eval"], "eval"),
        "eval-train": drawn(TRAIN, "train", ENGLISH_PER_HOP["eval-train"], "eval-train"),
        "questions": drawn(TRAIN, "given", ENGLISH_TRAIN_PER_HOP, "given"),
        "traces": script.traces(),
    }
    if foreign := fanoutqa.versions():
        rows["eval-fanoutqa"] = fanoutqa.questions(world.sources)
    _save(folder, rows, {**sources.versions(), **foreign})


def _save(
    folder: Path, rows: dict[str, Iterable[dict[str, object]]], marks: dict[str, object]
) -> None:
    """A file each, and the manifest with their checksums."""
    sums = {}
    for kind, lines in rows.items():
        file = folder / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        sums[file.name] = digest(file)
    (folder / _MANIFEST).write_text(json.dumps({**marks, "format": FORMAT_VERSION, "sha256": sums}))


def _corpus(world: World | English) -> Iterable[dict[str, object]]:
    return ({"id": document.id, "contents": document.contents} for document in world.documents())


def _targets(world: World) -> Iterable[dict[str, object]]:
    """One row an entity that can be an answer, with three example questions of other answers and a
    search count."""
    rng = generator(world.seed, "targets")
    pool = [
        question
        for hops in (1, 2, 3)
        for question in world.questions(hops, 200, derive(world.seed, "examples"))
    ]
    for target in world.targets():
        others = [q.text for q in pool if target not in (q.answer, q.text.split()[0])]
        examples = [others[i] for i in rng.choice(len(others), 3, replace=False)]
        shown = "\n".join(f"Question {k}: {text}" for k, text in enumerate(examples, 1))
        yield {
            "sys_question_example": shown,
            "ground_truth": target,
            "search_turns": str(rng.integers(1, 4)),
        }


def _questions(
    prefix: str,
    questions: list[Question],
    answers: Callable[[str], list[str]] = lambda answer: [answer],
) -> Iterable[dict[str, object]]:
    for i, question in enumerate(questions):
        yield {
            "id": f"{prefix}-{question.hops}hop-{i}",
            "question": question.text,
            "golden_answers": answers(question.answer),
            "metadata": {"hops": question.hops, "chain": [list(fact) for fact in question.chain]},
        }
