"""A run's folder read as a bank: one record for each question (text and target) that was handed in
and judged in a settled round. Nothing is written, so a run that still goes on can be read too."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TypeVar

from ssp.base.episode import EVAL, GREEDY, REPLAYED, TRIED, Outcome, called
from ssp.base.errors import InputError, hold
from ssp.config.schema import Config
from ssp.game.judge import same
from ssp.record.ledger.rows import EpisodeRow, GameRow, Row
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import groups
from ssp.selfplay.questions.files import answered, before_this
from ssp.selfplay.questions.records import (
    REJECTED,
    VALID,
    VOID,
    Attempt,
    PlayedGame,
    Record,
    identify,
    solve_rate,
)

Said = TypeVar("Said", PlayedGame, Attempt)

_WORLD = re.compile(r"worlds/v\d+-(\d+|english)[^/]*/[^/]+$")
_COLUMNS = ("id", "final", "queries", "tools", "documents")
SPLIT = "train"
"""The split that exported questions are in."""


@dataclass(frozen=True)
class RunReading:
    """The records, in the order in which their questions became known, and how many games have no
    question: `silent` (none was handed in), `void` (a fault of ours came first). Both are None for
    an export, which does not say."""

    records: list[Record]
    silent: int | None = None
    void: int | None = None


def read(run: RunFolder) -> RunReading:
    """The bank of a run, without transcripts (`told` adds them).

    InputError for a folder that is no run, for a run that has settled no game, and for an episodes
    file that is missing or is not the ledger's."""
    reader = RunReader(run)
    cfg = reader.cfg  # before the ledger: a folder without one is no run
    if not run.ledger.is_file():
        raise InputError(
            "a run that has played has a ledger",
            run.ledger,
            "wait until it has, or give another run",
        )
    games, entries = reader.settled()
    hold(
        games,
        "a bank holds the questions of settled rounds",
        f"{run.path} has none",
        "let the run go on",
    )
    records = gathered(cfg, run, games, entries)
    questions = [record.question for record in records]
    targets = [record.target for record in records]
    ids = [record.id for record in records]
    grouped = []
    for record, first in zip(records, groups.group(questions, targets), strict=True):
        grouped.append(replace(record, group=ids[first]))
    unasked = Counter(game["verdict"] for game in games if game["question"] is None)
    return RunReading(grouped, unasked[REJECTED], unasked[VOID])


def gathered(
    cfg: Config, run: RunFolder, games: Iterable[GameRow], entries: Iterable[EpisodeRow]
) -> list[Record]:
    """The records of settled games, without groups; from the ledger's rows of the games and of all
    their episodes."""
    by_game: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
    for entry in entries:
        by_game[entry["game_id"]].append(entry)
    asked: defaultdict[tuple[str, str], list[GameRow]] = defaultdict(list)
    for game in games:
        if game["question"] is not None:
            # What was handed in may be a question alone, whose answer nobody could read.
            asked[game["question"], game["target"] or ""].append(game)
    played = chain.from_iterable(by_game.values())
    reader = _Reader(cfg, run, RunReader(run).texts(played, _COLUMNS))

    def place(key: tuple[str, str]) -> str:
        """By its first accepted game, as a bank plays them (`Ledger.accepted`), else its first."""
        accepted = [game["id"] for game in asked[key] if game["verdict"] == VALID]
        return min(accepted, default=asked[key][0]["id"])

    return [reader.record(*key, asked[key], by_game) for key in sorted(asked, key=place)]


def told(run: RunFolder, records: Sequence[Record]) -> list[Record]:
    """The records with the whole text of each proposal and attempt."""
    reader = RunReader(run)
    rows = cache(lambda file: reader.columns(file, ["text"]))

    def filled(episode: Said) -> Said:
        if not episode.file:
            return episode
        row = rows(episode.file)[episode.row or 0]
        return replace(episode, transcript=row["text"])

    whole = []
    for record in records:
        plays = [filled(play) for play in record.plays]
        attempts = [filled(attempt) for attempt in record.attempts]
        whole.append(replace(record, plays=plays, attempts=attempts))
    return whole


def episodes(run: RunFolder) -> list[Row]:
    """The ledger's rows of all episodes with a transcript, the newest first and evaluations last,
    each with its game's `question` (None: it has none). InputError where there is no ledger."""
    with RunReader(run).ledger() as ledger:
        rows = ledger.played(sorted(ledger.issued()))
        games, _ = ledger.settled()
    rows.sort(
        key=lambda row: (row["role"] != EVAL, row["finished"] is None, row["finished"], row["id"]),
        reverse=True,
    )
    questions = {game["id"]: game["question"] for game in games}
    return [{**row, "question": questions.get(row["game_id"])} for row in rows]


def origin(path: str) -> str:
    """What a data path is called away from this machine: a world's name, else the last part of the
    path."""
    if path.startswith("world:"):
        return path
    world = _WORLD.search(path)
    return f"world:{world[1]}" if world else Path(path).name


class _Reader:
    """Makes records of rows. `texts`: episode → its columns in the run's files.

    A question that a run asked has the source of that run, and the licence of its corpus where this
    project generated it. A given question has the source, split and licence of its file."""

    def __init__(self, cfg: Config, run: RunFolder, texts: Mapping[str, Row]) -> None:
        self._cfg, self._run, self._texts = cfg, run, texts
        self._name = run.path.name
        self._origin = origin(cfg.data.corpus)
        self._given = answered(cfg)
        before = before_this(cfg)
        self._asked = before is not None or not self._given
        if not self._asked:
            self._origin = origin(cfg.data.questions)
        elif before is not None:
            self._name, self._origin = before.name, ""
            asking = RunReader(before).cfg if before.config.is_file() else None
            if asking and asking.game.questions == "proposer":
                self._origin = origin(asking.data.corpus)
        self._license = "unknown"
        if self._origin == "world:english":  # its passages are others'
            self._license = "cc-by-sa-4.0"
        elif self._origin.startswith("world:"):
            self._license = "apache-2.0"

    def source(self, question: str, target: str) -> tuple[Sequence[str], str, str, str]:
        """All right answers, the source, the split and the licence. InputError for a given question
        that its file lacks."""
        given = self._given.get((question, target))
        if self._asked:
            answers = (target,) if given is None else given.answers
            return answers, f"selfplay-{self._name}", SPLIT, self._license
        if given is None:
            raise InputError(
                "the questions that a run was given are in its data.questions",
                f"{self._origin} has no {question!r} with {target!r}",
                "restore that file",
            )
        return given.answers, given.source or self._origin, given.split or SPLIT, self._license

    def record(
        self,
        question: str,
        target: str,
        games: Sequence[GameRow],
        entries: Mapping[str, Sequence[EpisodeRow]],
    ) -> Record:
        """One question with its games, in the order in which they were played."""
        golds, source, split, license_ = self.source(question, target)
        plays, attempts = [], []

        def age(game: GameRow) -> tuple[float, str]:
            created = [entry["created"] for entry in entries[game["id"]]]
            return min(created, default=0.0), game["id"]

        for game in sorted(games, key=age):
            tried = self._attempts(game, entries[game["id"]], golds)
            plays.append(self._play(game, entries[game["id"]], tried))
            attempts += tried
        verdicts = [play.verdict for play in plays]
        verdict = next((best for best in (VALID, REJECTED) if best in verdicts), VOID)
        decisive = [play for play in plays if play.verdict == verdict]
        main = min(decisive, key=lambda play: play.kind != "proposed")
        rate = solve_rate(plays)
        return Record(
            id=identify(question, target),
            question=question,
            target=target,
            answers=list(golds),
            verdict=verdict,
            rule=main.rule,
            proposer_version=main.proposer_version,
            queries=main.queries,
            evidence=main.evidence,
            solve_rate=rate,
            difficulty=None if rate is None else round(1 - rate, 6),
            group="",
            data_source=source,
            split=split,
            license=license_,
            corpus=origin(self._cfg.data.corpus),
            run=self._run.name,
            plays=plays,
            attempts=attempts,
        )

    def _play(
        self, game: GameRow, entries: Sequence[EpisodeRow], tried: Sequence[Attempt]
    ) -> PlayedGame:
        """One game, with the last proposal of it that has a transcript."""
        kind = REPLAYED if game["kind"] == TRIED else game["kind"]
        proposals = [entry for entry in entries if entry["kind"] == self._cfg.spec.asks]
        proposals.sort(key=lambda entry: (entry["file"] is None, -entry["issue"]))
        proposal = proposals[0] if proposals else None
        said = self._texts.get(proposal["id"], {}) if proposal else {}
        versions = [a.version_min for a in tried if a.version_min is not None]
        return PlayedGame(
            game=game["id"],
            kind=kind,
            verdict=game["verdict"],
            rule=game["rule"],
            proposer_version=game["proposer_version"],
            proposal=proposal["id"] if proposal else None,
            file=proposal["file"] if proposal else None,
            row=proposal["row"] if proposal else None,
            queries=called(said.get("queries", []), said.get("tools") or []),
            evidence=list(dict.fromkeys(said.get("documents", []))),
            solver_version=min(versions, default=None),
            scored=sum(_scored(attempt) for attempt in tried),
            win_rate=game["win_rate"],
        )

    def _attempts(
        self, game: GameRow, entries: Sequence[EpisodeRow], golds: Sequence[str]
    ) -> list[Attempt]:
        """The attempts of a game. What another judge said is not on record: it is inferred where
        the win rate says that all undecided attempts are right, or none."""
        kinds = (self._cfg.spec.answers, GREEDY)
        attempts = [self._attempt(game, row, golds) for row in entries if row["kind"] in kinds]
        if game["win_rate"] is None:
            return attempts
        scored = [attempt for attempt in attempts if _scored(attempt)]
        unsure = [attempt for attempt in scored if attempt.right is None]
        known = sum(attempt.right is True for attempt in scored)
        more = game["win_rate"] * len(scored) - known
        for right, number in ((False, 0), (True, len(unsure))):
            if abs(more - number) < 1e-6:
                return [replace(a, right=right) if a in unsure else a for a in attempts]
        return attempts

    def _attempt(self, game: GameRow, entry: EpisodeRow, golds: Sequence[str]) -> Attempt:
        said = self._texts.get(entry["id"], {})
        answer = said.get("final")
        exact = answer is not None and same(answer, golds)
        decided = exact or answer is None or self._cfg.judge.kind == "exact"
        void = entry["outcome"] == Outcome.VOID.value
        return Attempt(
            episode=entry["id"],
            game=game["id"],
            greedy=entry["kind"] == GREEDY,
            version_min=entry["policy_version_min"],
            version_max=entry["policy_version_max"],
            answer=answer,
            right=exact if decided and not void else None,
            searches=len(said.get("queries", [])),
            step=entry["commit_step"],
            state=entry["state"],
            outcome=entry["outcome"],
            cause=entry["cause"],
            reward=entry["reward"],
            file=entry["file"],
            row=entry["row"],
        )


def _scored(attempt: Attempt) -> bool:
    """Whether the attempt stands in the game's win rate."""
    return attempt.outcome != Outcome.VOID.value and not attempt.greedy
