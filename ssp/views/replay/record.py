"""What is on record of a run's episodes, the task that each of them played, and where the weights
are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ssp.base.episode import EVAL, EVALUATION, GREEDY, Episode, Task
from ssp.base.errors import InputError, hold
from ssp.base.models import called
from ssp.base.played import Game
from ssp.base.text import normalise, plain
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.data.readers import Question, read_questions
from ssp.game import corpora, protocols
from ssp.record.ledger.rows import EpisodeRow, Row
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.search.router import NO_CORPUS
from ssp.selfplay.scene import concrete, read_items
from ssp.selfplay.targets import Targets
from ssp.selfplay.versions import ANCHORS
from ssp.selfplay.workers import build

KEEP = "of the next run keep more: save.keep=1000 save.every=1"
"""What to do where weights are gone."""


@dataclass(frozen=True)
class RecordedEpisode:
    """An episode, the place of its transcript, and the ledger's rows of it and of its game (empty
    where the ledger has none)."""

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
        """The file of its transcript, which holds the block that it was played in."""
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
        """The temperature that it was sampled at."""
        if self.evaluates:
            return cfg.eval.temperature
        greedy = self.entry.get("kind") == GREEDY
        return 0.0 if greedy else cfg.block(self.policy).sampling.temperature


def named(run: RunFolder, id: str) -> RecordedEpisode:
    """The episode `id` of the run's ledger. InputError when there is none, or none with a
    transcript."""
    reader = RunReader(run)
    entry, game = reader.recorded(id)
    if entry is None:
        next_step = f"`ssp bank {called(run.path)} --episodes` lists them"
        raise InputError("an episode's id stands in the run's ledger", id, next_step)
    file = entry["file"]
    cause = entry["cause"] or "no cause"
    if file is None:
        rule = "an episode that was played to its end has a transcript"
        raise InputError(rule, f"{id}, which is {entry['state']} ({cause})", "look at another one")
    place = f"{run.episodes / file}:{entry['row']}"
    return RecordedEpisode(reader.episode(entry), place, run, {**entry}, {**(game or {})})


class Records:
    """The episodes of one run; its own code, where `trusted`, may price them again. `roles`: whose
    episodes are read, all without any. InputError for what is no played run."""

    def __init__(self, run: RunFolder, trusted: bool = False, roles: Sequence[str] = ()) -> None:
        self.run = run
        self.reader = RunReader(run, trusted)
        self.cfg = concrete(self.reader.cfg)
        with self.reader.ledger() as ledger:
            rows = ledger.played(roles or [*self.cfg.spec.role_blocks, EVAL])
            self._rows = {row["id"]: row for row in rows}
            self.versions = ledger.versions()
            games = {row["game_id"] for row in rows if row["kind"] != EVALUATION}
            self._games = {game["id"]: game for game in ledger.get(sorted(games), "games")}

    def played(self, role: str = "") -> list[EpisodeRow]:
        """The ledger's rows of all finished episodes that have a transcript, or of those of one
        role, by file and row."""
        rows = (row for row in self._rows.values() if row["finished"] is not None)
        return [row for row in rows if not role or row["role"] == role]

    def episodes(self, rows: Iterable[EpisodeRow]) -> list[RecordedEpisode]:
        """The episodes of these rows, in the rows' order. InputError for a file that is missing or
        not the ledger's."""
        folder = self.run.episodes
        return [
            self._recorded(self.reader.episode(row), f"{folder}/{row['file']}:{row['row']}")
            for row in rows
        ]

    def block(self, file: str) -> list[RecordedEpisode]:
        """All episodes that were played together with those of `file`."""
        episodes = enumerate(self.reader.block(file))
        return [self._recorded(episode, f"{file}:{row}") for row, episode in episodes]

    def _recorded(self, episode: Episode, place: str) -> RecordedEpisode:
        entry = self._rows.get(episode.id)
        game = self._games.get(episode.game, {})
        return RecordedEpisode(episode, place, self.run, {**(entry or {})}, game)

    def task(self, played: RecordedEpisode) -> Task:
        """The task that the coordinator issued. InputError for an evaluation's question that its
        file does not have any more."""
        episode = played.episode
        game = played.game
        corpus = corpora.TRAIN
        if played.evaluates:
            chosen = next(s for s in self.cfg.data.eval if f"eval/{s.name}" == episode.game)
            question = self.question(chosen.name, played.entry["item"] or "", episode.text)
            fields = {"question": question.question}
            corpus = chosen.corpus
            prompt = self.cfg.spec.examining.prompt
        else:
            # A kind is a stage's name, or one beside the game (a greedy answer, a past version's
            # attempt), which answers.
            kind = str(played.entry.get("kind"))
            stage = self.cfg.spec.plays.get(kind, self.cfg.spec.answering)
            asked = kind == self.cfg.spec.asks
            fields = dict(stage.fields(self._game(game, asked), episode.attempt))
            corpus = NO_CORPUS if stage.closed else corpora.TRAIN
            prompt = stage.prompt
        return Task(
            episode.id,
            episode.game,
            played.policy,
            episode.attempt,
            episode.seed,
            fields,
            corpus,
            prompt=prompt,
        )

    def _game(self, row: Row, asked: bool) -> Game:
        """What a prompt may be filled with: the game of a ledger's row; where it was `asked` about a
        row of the data, what that says."""
        hints = self.targets.item(row["number"]).hints if asked else {}
        target, question = str(row["target"] or ""), str(row["question"] or "")
        return Game(row["id"], row["number"] or 0, target, hints, question=question)

    def asked(self, played: RecordedEpisode) -> tuple[str, int]:
        """What the referee knew of a proposal: its target, and the searches that its row asks
        for."""
        if not played.game:
            return "", 0
        game = self._game(played.game, asked=True)
        return game.target, int(game.hints.get("searches") or 0)

    @cached_property
    def targets(self) -> Targets:
        """The rows that the run played."""
        cfg = self.cfg
        return Targets(read_items(cfg), cfg.asking.batch, cfg.seed, each=cfg.game.proposals)

    @cached_property
    def _questions(self) -> dict[str, dict[str, Question]]:
        """Evaluation set → id → question."""
        sets = {chosen.name: read_questions(chosen.file) for chosen in self.cfg.data.eval}
        return {name: {asked.id: asked for asked in set_} for name, set_ in sets.items()}

    def question(self, name: str, id: str, text: str) -> Question:
        """The question of the set `name` that the transcript `text` begins with; an agent's need
        not. InputError where the set's file has none of that id any more, or another one."""
        rule = f"the questions that a run was evaluated with stand in the file of its set {name!r}"
        step = "restore it; a world may be another one in another version of ssp"
        asked = self._questions.get(name, {}).get(id)
        if asked is None:
            raise InputError(rule, f"no {id} there", step)
        # as prompts have it
        protocol = protocols.get(self.cfg.protocol)
        shown = normalise(plain(protocol.uncontrolled(asked.question)))
        there = not text or self.cfg.answering.agent or shown in normalise(plain(text))
        hold(there, rule, f"{id} asks something else there: {asked.question}", step)
        return asked


def chosen(rows: Sequence[EpisodeRow], limit: int | None) -> list[EpisodeRow]:
    """At most `limit` of `rows`, spread evenly over them."""
    if limit is None or limit >= len(rows):
        return list(rows)
    return [rows[i * len(rows) // limit] for i in range(limit)]


class Weights:
    """Folders of a run's versions. `versions`: what `Ledger.versions` returns.

    What is published when a run starts are the weights that were loaded; they lie under the number
    that they were first published by. A shared policy's lie under its learner's name."""

    def __init__(
        self, run: RunFolder, cfg: Config, versions: Mapping[str, Mapping[int, tuple[int, int]]]
    ) -> None:
        self._run = run
        self._cfg = cfg
        self._versions = versions
        self._learner = {role: name for name, roles in learners(cfg).items() for role in roles}

    def folder(self, role: str, version: int) -> Path | None:
        """Where the weights of the role's `version` are; None: gone (`save.keep`), or never on disk
        (an anchor's)."""
        if version >= ANCHORS:
            return None
        learner = self._learner[role]
        own = self._published(role)
        given = self._published(learner)
        at = self._versions.get(role, {}).get(version)
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
            earlier = []
            for life, other in given:
                if life < incarnation and other <= step:
                    earlier.append((other, life))
            if not earlier:
                return None
            loaded, life = max(earlier)  # what this incarnation went on from
            at = life, loaded
        return None

    def _published(self, role: str) -> dict[tuple[int, int], int]:
        """(incarnation, step) → the version that those weights of `role` were published by."""
        return {published: version for version, published in self._versions.get(role, {}).items()}

    def kept(self, role: str) -> dict[int, Path]:
        """The role's versions whose weights are still there, in order."""
        kept = {}
        for version in sorted(self._versions.get(role, {})):
            folder = self.folder(role, version)
            if folder is not None:
                kept[version] = folder
        return kept

    def there(self, rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
        """The rows of the ledger for whose versions, from the oldest to the newest, all weights are
        there."""
        kept = {role: self.kept(role) for role in self._learner}
        kept[EVAL] = kept[self._cfg.spec.answerer]

        def there(row: EpisodeRow) -> bool:
            versions = range(row["policy_version_min"] or 0, (row["policy_version_max"] or 0) + 1)
            return all(version in kept[row["role"]] for version in versions)

        return [row for row in rows if there(row)]
