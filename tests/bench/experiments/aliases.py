"""A world in which about a third of the entities have a second name, for the experiment with a judge that knows names.

There is a page under either name, and who says a fact about such an entity says it with either name. Questions and targets
are those of the plain world; the second name is another gold answer in the files that this run's own set is read from.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ssp.base import cache
from ssp.base.episode import Document
from ssp.base.seeds import generator
from ssp.config.schema import Config
from ssp.game.world import World, files
from ssp.game.world.generator import Fact
from ssp.game.world.vocabulary import ARTICLE, NAMES, STOP


class AliasWorld(World):
    """The world of `seed` with second names."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        spare = [name for name in NAMES if name not in self.types]
        chosen = generator(seed, "aliases").permutation(len(self.entities))
        self._second = {self.entities[i]: second for i, second in zip(chosen, spare, strict=False)}
        self._first = {second: first for first, second in self._second.items()}

    def names(self, name: str) -> tuple[str, ...]:
        """All names of the entity that `name` names, its first one first; of another word, the word."""
        first = self._first.get(name, name)
        return (first, self._second[first]) if first in self._second else (first,)

    def documents(self) -> list[Document]:
        """One document a name."""
        rng = generator(self.seed, "alias documents")
        made = []
        for name in (name for entity in self.entities for name in self.names(entity)):
            first = self.names(name)[0]
            said = [f"{name} {rel} {other}" for rel, to in self.facts[first].items() for other in self.names(to)]
            text = f" {STOP} ".join(
                [f"{name} {ARTICLE} {self.types[first]}", *(said[i] for i in rng.permutation(len(said)))]
            )
            made.append(Document(f"w{self.seed}-{len(made):03d}", f'"{name}"\n{text} {STOP}'))
        return made

    def follow(self, start: str, relations: list[str]) -> tuple[Fact, ...] | None:
        """From any name, in first names."""
        return super().follow(self.names(start)[0], relations)

    def is_junk(self, question: str, target: str) -> bool:
        """Whatever name the target is called by."""
        return super().is_junk(question, self.names(target)[0])

    def truths(self, question: str) -> list[str] | None:
        """Under every name."""
        truths = super().truths(question)
        return None if truths is None else [name for truth in truths for name in self.names(truth)]


def lay(cfg: Config) -> AliasWorld:
    """Let `cfg` play in the training world with second names, whose corpus and set are written into the cache."""
    world = AliasWorld(files.SEEDS["train"])
    folder = cache.root() / "worlds" / f"aliases-{world.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    corpus, asked = folder / "corpus.jsonl", folder / "eval.jsonl"
    lines = [json.dumps({"id": document.id, "contents": document.contents}) for document in world.documents()]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = map(json.loads, Path(files.resolve("world:train", "eval")).read_text(encoding="utf-8").splitlines())
    lines = [json.dumps({**row, "golden_answers": world.names(row["golden_answers"][0])}) for row in rows]
    asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
    cfg.data.corpus = str(corpus)
    own = {"file": str(asked), "corpus": str(corpus)}
    cfg.data.eval = [replace(item, **own) if item.file == "world:train" else item for item in cfg.data.eval]
    return world
