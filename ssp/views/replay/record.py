"""What is on record of a run's episodes, and the task that each of them played.

Promises to change nothing, and that a task is what the coordinator issued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ssp.base.episode import EVAL, EVALUATION, GREEDY, PROPOSER, SOLVER, Episode, Task
from ssp.base.errors import InputError
from ssp.base.models import called
from ssp.config.schema import Config, EvalSet
from ssp.data.readers import Question, read_questions
from ssp.game import corpora
from ssp.record.ledger.rows import EpisodeRow
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.scene import concrete, read_items
from ssp.selfplay.targets import Targets

Row = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """An episode, where it lies, and what the ledger says of it and of its game (empty: nothing)."""

    episode: Episode
    place: str
    run: RunFolder
    entry: Row
    game: Row

    @property
    def policy(self) -> str:
        """The role whose weights played: an evaluation is the solver's."""
        return PROPOSER if self.episode.role == PROPOSER else SOLVER

    @property
    def file(self) -> Path:
        """The file that it lies in, which is the block that it was played in."""
        return Path(self.place.rpartition(":")[0])

    @property
    def evaluates(self) -> bool:
        """True for an episode of an evaluation during the run."""
        return self.entry.get("kind") == EVALUATION

    @property
    def versions(self) -> list[int]:
        """The versions that drew its tokens, in order of time."""
        return list(dict.fromkeys(version for version in self.episode.log.versions if version >= 0))

    @property
    def update(self) -> int | None:
        """The update of its role whose limits it was played in; None where no ledger says."""
        return self.entry.get("round")

    def temperature(self, cfg: Config) -> float:
        """At which it was sampled."""
        if self.evaluates:
            return cfg.eval.temperature
        return 0.0 if self.entry.get("kind") == GREEDY else cfg.block(self.policy).sampling.temperature


def at(run: RunFolder, path: Path, row: str) -> Found:
    """Row `row` of an episodes file. InputError for another one."""
    reader = RunReader(run)
    block = reader.block(str(path))
    if not row.isdecimal() or int(row) >= len(block):
        raise InputError(f"{path.name} has rows 0 to {len(block) - 1}", row, "give one of these")
    episode = block[int(row)]
    entry, game = reader.recorded(episode.id)
    return Found(episode, f"{path}:{row}", run, {**(entry or {})}, {**(game or {})})


def named(run: RunFolder, id: str) -> Found:
    """The episode `id` of the run's ledger. InputError when there is none, or none with a transcript."""
    entry, _ = RunReader(run).recorded(id)
    if entry is None:
        next_step = f"`ssp bank {called(run.path)} --episodes` lists them"
        raise InputError("an episode's id stands in the run's ledger", id, next_step)
    if entry["file"] is None:
        found = f"{id}, which is {entry['state']} ({entry['cause'] or 'no cause'})"
        raise InputError("an episode that was played to its end has a transcript", found, "look at another one")
    return at(run, run.episodes / entry["file"], str(entry["row"]))


class Records:
    """The episodes of one run; its own code, where it is `trusted`, may price them again. InputError for a folder that is no
    run, or one that has played nothing."""

    def __init__(self, run: RunFolder, trusted: bool = False) -> None:
        self.run, self.reader = run, RunReader(run, trusted)
        self.cfg = concrete(self.reader.cfg)
        with self.reader.ledger() as ledger:
            self._played = {row["id"]: row for row in ledger.played([PROPOSER, SOLVER, EVAL])}
            self.versions = ledger.versions()
            games = sorted({row["game_id"] for row in self._played.values() if row["kind"] != EVALUATION})
            self._games = dict(zip(games, ledger.get(games, "games"), strict=True))

    def played(self, role: str = "") -> list[EpisodeRow]:
        """The ledger's rows of all finished episodes that have a transcript, or of those of one role, by file and row."""
        rows = (row for row in self._played.values() if row["finished"] is not None)
        return [row for row in rows if not role or row["role"] == role]

    def found(self, rows: Iterable[EpisodeRow]) -> list[Found]:
        """The episodes of these rows, in the rows' order. InputError for a file that is missing or not the ledger's."""
        return [
            self._found(self.reader.episode(row), f"{self.run.episodes}/{row['file']}:{row['row']}") for row in rows
        ]

    def _found(self, episode: Episode, place: str) -> Found:
        """With what the ledger knows of it."""
        entry, game = self._played.get(episode.id), self._games.get(episode.game, {})
        return Found(episode, place, self.run, {**(entry or {})}, game)

    def block(self, file: Path) -> list[Found]:
        """All episodes that were played together with those of `file`."""
        return [self._found(episode, f"{file}:{row}") for row, episode in enumerate(self.reader.block(str(file)))]

    def task(self, found: Found) -> Task:
        """What the coordinator issued. InputError for an evaluation's question that its file does not have any more."""
        e = found.episode
        return Task(e.id, e.game, found.policy, e.attempt, e.seed, self._fields(found), self._corpus(found))

    def _fields(self, found: Found) -> dict[str, str]:
        if found.evaluates:
            asked = self._asked[self._set(found).name].get(found.entry["item"])
            if asked is None:
                rule = "the question of an evaluation's episode stands in the set's file"
                raise InputError(rule, found.episode.id, "restore the files of data.eval")
            return {"question": asked.question}
        if found.policy == SOLVER:
            return {"question": str(found.game["question"])}
        return {"target": str(found.game["target"]), **self._targets.item(found.game["number"]).hints}

    def _corpus(self, found: Found) -> str:
        return self._set(found).corpus if found.evaluates else corpora.TRAIN

    def _set(self, found: Found) -> EvalSet:
        """That an evaluation's episode was asked of."""
        return next(item for item in self.cfg.data.eval if f"eval/{item.name}" == found.episode.game)

    @cached_property
    def _targets(self) -> Targets:
        cfg = self.cfg
        return Targets(read_items(cfg), cfg.proposer.batch, cfg.seed, each=cfg.game.proposals)

    @cached_property
    def _asked(self) -> dict[str, dict[str, Question]]:
        """Evaluation set → id → question."""
        return {item.name: {asked.id: asked for asked in read_questions(item.file)} for item in self.cfg.data.eval}

    def questions(self, name: str) -> dict[str, Question]:
        """The questions of an evaluation set, by id."""
        return self._asked.get(name, {})


def chosen(rows: Sequence[EpisodeRow], limit: int | None) -> list[EpisodeRow]:
    """At most `limit` of `rows`, spread evenly over them."""
    if limit is None or limit >= len(rows):
        return list(rows)
    return [rows[i * len(rows) // limit] for i in range(limit)]
