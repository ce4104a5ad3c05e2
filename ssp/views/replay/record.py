"""What is on record of a run's episodes, the task that each of them played, and where the weights
are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ssp.base.episode import EVAL, EVALUATION, GREEDY, Episode, Task
from ssp.base.errors import InputError, hold
from ssp.base.models import called
from ssp.base.text import normalise, plain
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.data.readers import Question, read_questions
from ssp.game import corpora, protocols
from ssp.record.ledger.rows import EpisodeRow
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.scene import concrete, read_items
from ssp.selfplay.targets import Targets
from ssp.selfplay.versions import ANCHORS
from ssp.selfplay.workers import build

Row = dict[str, Any]

KEEP = "of the next run keep more: save.keep=1000 save.every=1"
"""What to do where weights are gone."""


@dataclass(frozen=True)
class Found:
    """An episode, where it lies, and what the ledger says of it and of its game (empty:
    nothing)."""

    episode: Episode
    place: str
    run: RunFolder
    entry: Row
    game: Row

    @property
    def policy(self) -> str:
        """The role whose weights played, of an evaluation too."""
        return self.episode.role

    @property
    def file(self) -> str:
        """The file that it lies in, which is the block that it was played in."""
        return self.place.rpartition(":")[0]

    @property
    def evaluates(self) -> bool:
        """True for an episode of an evaluation during the run."""
        return self.entry.get("kind") == EVALUATION

    @property
    def versions(self) -> list[int]:
        """The versions that drew its tokens, in order of time."""
        return list(dict.fromkeys(version for version in self.episode.log.versions if version >= 0))

    def temperature(self, cfg: Config) -> float:
        """At which it was sampled."""
        if self.evaluates:
            return cfg.eval.temperature
        return (
            0.0 if self.entry.get("kind") == GREEDY else cfg.block(self.policy).sampling.temperature
        )


def named(run: RunFolder, id: str) -> Found:
    """The episode `id` of the run's ledger. InputError when there is none, or none with a
    transcript."""
    reader = RunReader(run)
    entry, game = reader.recorded(id)
    if entry is None:
        next_step = f"`ssp bank {called(run.path)} --episodes` lists them"
        raise InputError("an episode's id stands in the run's ledger", id, next_step)
    if entry["file"] is None:
        found = f"{id}, which is {entry['state']} ({entry['cause'] or 'no cause'})"
        raise InputError(
            "an episode that was played to its end has a transcript", found, "look at another one"
        )
    place = f"{run.episodes / entry['file']}:{entry['row']}"
    return Found(reader.episode(entry), place, run, {**entry}, {**(game or {})})


class Records:
    """The episodes of one run; its own code, where `trusted`, may price them again. InputError for
    what is no played run."""

    def __init__(self, run: RunFolder, trusted: bool = False) -> None:
        self.run, self.reader = run, RunReader(run, trusted)
        self.cfg = concrete(self.reader.cfg)
        with self.reader.ledger() as ledger:
            self._played = {
                row["id"]: row for row in ledger.played([*self.cfg.spec.role_blocks, EVAL])
            }
            self.versions = ledger.versions()
            games = sorted(
                {row["game_id"] for row in self._played.values() if row["kind"] != EVALUATION}
            )
            self._games = dict(zip(games, ledger.get(games, "games"), strict=True))

    def played(self, role: str = "") -> list[EpisodeRow]:
        """The ledger's rows of all finished episodes that have a transcript, or of those of one
        role, by file and row."""
        rows = (row for row in self._played.values() if row["finished"] is not None)
        return [row for row in rows if not role or row["role"] == role]

    def found(self, rows: Iterable[EpisodeRow]) -> list[Found]:
        """The episodes of these rows, in the rows' order. InputError for a file that is missing or
        not the ledger's."""
        folder = self.run.episodes
        return [
            self._found(self.reader.episode(row), f"{folder}/{row['file']}:{row['row']}")
            for row in rows
        ]

    def _found(self, episode: Episode, place: str) -> Found:
        entry = self._played.get(episode.id)
        return Found(episode, place, self.run, {**(entry or {})}, self._games.get(episode.game, {}))

    def block(self, file: str) -> list[Found]:
        """All episodes that were played together with those of `file`."""
        return [
            self._found(episode, f"{file}:{row}")
            for row, episode in enumerate(self.reader.block(file))
        ]

    def task(self, found: Found) -> Task:
        """What the coordinator issued. InputError for an evaluation's question that its file does
        not have any more."""
        e, corpus = found.episode, corpora.TRAIN
        if found.evaluates:
            chosen = next(item for item in self.cfg.data.eval if f"eval/{item.name}" == e.game)
            asked = self.question(chosen.name, found.entry["item"] or "", e.text)
            fields, corpus = {"question": asked.question}, chosen.corpus
        elif found.entry.get("kind") != self.cfg.spec.asks:
            fields = {"question": str(found.game["question"])}
        else:
            fields = {
                "target": str(found.game["target"]),
                **self._targets.item(found.game["number"]).hints,
            }
        return Task(e.id, e.game, found.policy, e.attempt, e.seed, fields, corpus)

    def asked(self, found: Found) -> tuple[str, int]:
        """What the referee knew of a proposal: its target, and the searches that its row asks
        for."""
        fields = self.task(found).fields if found.game else {}
        return fields.get("target", ""), int(fields.get("searches") or 0)

    @cached_property
    def _targets(self) -> Targets:
        cfg = self.cfg
        return Targets(read_items(cfg), cfg.asking.batch, cfg.seed, each=cfg.game.proposals)

    @cached_property
    def _asked(self) -> dict[str, dict[str, Question]]:
        return {
            item.name: {asked.id: asked for asked in read_questions(item.file)}
            for item in self.cfg.data.eval
        }

    def question(self, name: str, id: str, text: str) -> Question:
        """The question of the set `name` that the transcript `text` begins with; an agent's need
        not. InputError where the set's file has none of that id any more, or another one."""
        rule = f"the questions that a run was evaluated with stand in the file of its set {name!r}"
        step = "restore it; a world may be another one in another version of ssp"
        asked = self._asked.get(name, {}).get(id)
        if asked is None:
            raise InputError(rule, f"no {id} there", step)
        # as prompts have it
        shown = normalise(plain(protocols.get(self.cfg.protocol).uncontrolled(asked.question)))
        there = not text or self.cfg.answering.agent or shown in normalise(plain(text))
        hold(there, rule, f"{id} asks something else there: {asked.question}", step)
        return asked


def chosen(rows: Sequence[EpisodeRow], limit: int | None) -> list[EpisodeRow]:
    """At most `limit` of `rows`, spread evenly over them."""
    if limit is None or limit >= len(rows):
        return list(rows)
    return [rows[i * len(rows) // limit] for i in range(limit)]


class Weights:
    """Folders of a run's versions, by `Ledger.versions`. A publication at a start has the weights
    of what was loaded, which lie under the number they were first published by; a shared policy's
    lie under its learner's."""

    def __init__(
        self, run: RunFolder, cfg: Config, versions: Mapping[str, Mapping[int, tuple[int, int]]]
    ) -> None:
        self._run, self._cfg, self._versions = run, cfg, versions
        self._learner = {role: name for name, roles in learners(cfg).items() for role in roles}

    def folder(self, role: str, version: int) -> Path | None:
        """Where the weights of the role's `version` are; None: gone (`save.keep`), or never on disk
        (an anchor's)."""
        at: tuple[int, int] | None = self._versions.get(role, {}).get(version)
        if version >= ANCHORS:
            return None
        learner = self._learner[role]
        given = {published: number for number, published in self._versions.get(learner, {}).items()}
        own = {published: number for number, published in self._versions.get(role, {}).items()}
        while at is not None and at in given:
            for path in (
                self._run.checkpoint(learner, given[at]),
                self._run.member(role, own.get(at, -1)),
            ):
                if path.is_dir():
                    return path
            incarnation, step = at
            if step > min(other for life, other in given if life == incarnation):
                # it was learned; an incarnation's first publication is of what was loaded
                return None
            if step == 0:
                return build.model_dir(self._cfg, learner, self._run)
            before = [
                (other, life) for life, other in given if life < incarnation and other <= step
            ]
            at = max(before)[::-1] if before else None
        return None

    def kept(self, role: str) -> dict[int, Path]:
        """Of the role's versions those whose weights are still there, in order."""
        found = {
            version: self.folder(role, version) for version in sorted(self._versions.get(role, {}))
        }
        return {version: path for version, path in found.items() if path is not None}

    def there(self, rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
        """Of these rows of the ledger those of whose versions, from the oldest to the newest, all
        weights are there."""
        kept = {role: self.kept(role) for role in self._learner}
        answerer = self._cfg.spec.answerer

        def there(row: EpisodeRow) -> bool:
            versions = range(row["policy_version_min"] or 0, (row["policy_version_max"] or 0) + 1)
            return all(
                version in kept[answerer if row["role"] == EVAL else row["role"]]
                for version in versions
            )

        return [row for row in rows if there(row)]
