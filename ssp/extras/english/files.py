"""The English world as files, and the names that it has in `ssp.game.world.files.OF_EXTRAS`."""

from collections.abc import Mapping
from pathlib import Path

from ssp.base.errors import hold
from ssp.base.seeds import derive
from ssp.extras.english import fanoutqa, packages, sources
from ssp.extras.english.facts import grammar
from ssp.extras.english.traces import Script
from ssp.extras.english.world import HELDOUT, TRAIN, English
from ssp.game.world.files import KINDS, corpus_rows, kept, question_rows, save
from ssp.game.world.generator import WorldQuestion

VERSION = 15
"""Raised when other files come from the same packages."""
OTHER_EVAL = {"world:english-train": "eval-train", "world:fanoutqa": "eval-fanoutqa"}
"""Name → the file that it reads for an evaluation: questions of the training split, or
FanOutQA's."""
HELDOUT_PER_HOP = {1: 256, 2: 256, 3: 256}
TRAIN_PER_HOP = {1: 128, 2: 128, 3: 128}
GIVEN_PER_HOP = {1: 1800, 2: 1800, 3: 1800}
"""Questions of eval.jsonl, eval-train.jsonl and questions.jsonl, by their hops."""


def oracle() -> English:
    """What knows the true answer of a question's text."""
    return English()


def resolve(path: str, kind: str, cache_root: Path | None = None) -> str:
    """The file behind a name of this world. InputError for a kind that it has not."""
    made = ensure(cache_root)
    wanted = OTHER_EVAL.get(path, kind) if kind == "eval" else kind
    rule = f"{path} needs the package {packages.QUESTIONS}"
    hold(wanted in made, rule, "not installed", "bash launch/setup.sh english")
    return str(made[wanted])


def ensure(cache_root: Path | None = None) -> dict[str, Path]:
    """The files by kind, which hold what is installed; made where they are absent or altered.
    InputError where no package is."""
    foreign = packages.versions(packages.QUESTIONS)
    versions = {**sources.versions(), **foreign}
    kinds = [*KINDS, "eval-train", "traces"]
    if foreign:
        kinds.append("eval-fanoutqa")
    # What the packages and the phrasings say; what is done with them is VERSION.
    said = [f"{name} {version}" for name, version in versions.items()]
    mark = derive(VERSION, *said, grammar()) % 10**8
    return kept(f"v{VERSION}-english-{mark:08d}", kinds, lambda to: write(to, versions), cache_root)


def write(folder: Path, versions: Mapping[str, str]) -> None:
    """Write the files. `versions`: those of the packages, by name."""
    world = English()
    script = Script(world)

    def drawn(part: str, per_hop: dict[int, int], seed: str) -> list[WorldQuestion]:
        questions: list[WorldQuestion] = []
        for hops, number in per_hop.items():
            questions += world.questions(part, hops, number, derive(0, seed))
        return questions

    held = drawn(HELDOUT, HELDOUT_PER_HOP, "eval")
    train = drawn(TRAIN, TRAIN_PER_HOP, "eval-train")
    given = drawn(TRAIN, GIVEN_PER_HOP, "given")
    rows = {
        "corpus": corpus_rows(world.documents()),
        "targets": script.aims(),
        "eval": question_rows("heldout", held, world.answers),
        "eval-train": question_rows("train", train, world.answers),
        "questions": question_rows("given", given, world.answers),
        "traces": script.traces(),
    }
    if packages.QUESTIONS in versions:
        rows["eval-fanoutqa"] = fanoutqa.questions(world.sources)
    save(folder, rows, versions)
