"""A run's folder read as a bank: a record for each question (text and target) that was handed in
and judged, in the rounds that are settled. Nothing is written, so that a run that goes on can be
read too."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ssp.base.episode import EVAL, GREEDY, REPLAYED, TRIED, Outcome, called
from ssp.base.errors import InputError, hold
from ssp.config.schema import Config
from ssp.game.judge import same
from ssp.record.ledger.rows import EpisodeRow, GameRow
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

Row = dict[str, Any]
Said = TypeVar("Said", PlayedGame, Attempt)

_WORLD = re.compile(r"worlds/v\d+-(\d+|english)[^/]*/[^/]+$")
_COLUMNS = ("id", "final", "queries", "tools", "documents")
SPLIT = "train"
"""The split that exported questions are in."""


@dataclass(frozen=True)
class RunReading:
    """What was read: the records, in the order in which their questions became known, and the games
    that are none: `silent` (no question was handed in), `void` (a fault of ours came before one).
    Both None of an export, which does not say."""

    records: list[Record]
    silent: int | None = None
    void: int | None = None


def read(run: RunFolder) -> RunReading:
    """The bank of a run, without transcripts (`told` adds them). InputError for a folder that is no
    run, a run that has settled no game, an episodes file that is missing or is not the ledger's."""
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
    first = groups.group(
        [record.question for record in records], [record.target for record in records]
    )
    records = [
        replace(record, group=records[place].id)
        for record, place in zip(records, first, strict=True)
    ]
    none = Counter(game["verdict"] for game in games if game["question"] is None)
    return RunReading(records, none[REJECTED], none[VOID])


def gathered(
    cfg: Config, run: RunFolder, games: Iterable[GameRow], entries: Iterable[EpisodeRow]
) -> list[Record]:
    """The records of settled games, given the ledger's rows of these and of all their episodes;
    without groups."""
    by_game: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
    for entry in entries:
        by_game[entry["game_id"]].append(entry)
    asked: defaultdict[tuple[str, str], list[GameRow]] = defaultdict(list)
    for game in games:
        if game["question"] is not None:
            asked[game["question"], game["target"]].append(game)
    reader = _Reader(
        cfg,
        run,
        RunReader(run).texts((entry for found in by_game.values() for entry in found), _COLUMNS),
    )

    def place(key: tuple[str, str]) -> str:
        """By its first accepted game, as a bank plays them (`Ledger.accepted`), else its first."""
        return min(
            (game["id"] for game in asked[key] if game["verdict"] == VALID),
            default=asked[key][0]["id"],
        )

    return [reader.record(*key, asked[key], by_game) for key in sorted(asked, key=place)]


def told(run: RunFolder, records: Sequence[Record]) -> list[Record]:
    """The records with the whole text of each proposal and attempt."""
    named = {play.file for record in records for play in record.plays}
    named |= {attempt.file for record in records for attempt in record.attempts}
    files = {file: RunReader(run).columns(file, ["text"]) for file in named if file}

    def filled(episode: Said) -> Said:
        text = files[episode.file][episode.row or 0]["text"] if episode.file else episode.transcript
        return replace(episode, transcript=text)

    return [
        replace(r, plays=[*map(filled, r.plays)], attempts=[*map(filled, r.attempts)])
        for r in records
    ]


def episodes(run: RunFolder) -> list[Row]:
    """The ledger's rows of all episodes with a transcript, the newest first and evaluations last,
    each with its game's `question` (None: it has none). InputError where there is no ledger."""
    with RunReader(run).ledger() as ledger:
        rows = ledger.played(sorted(ledger.issued()))
        questions = {game["id"]: game["question"] for game in ledger.settled()[0]}
    rows.sort(
        key=lambda row: (row["role"] != EVAL, row["finished"] is None, row["finished"], row["id"]),
        reverse=True,
    )
    return [{**row, "question": questions.get(row["game_id"])} for row in rows]


def origin(path: str) -> str:
    """What a data path is called away from this machine: a world's name, else the last part of the
    path."""
    world = _WORLD.search(path)
    return path if path.startswith("world:") else f"world:{world[1]}" if world else Path(path).name


class _Reader:
    """Makes records of rows. `texts`: what the files say of an episode. What was asked in a run is
    of its corpus, and of a generated one this project's; what was given is as its file says, or as
    the run that it was asked in."""

    def __init__(self, cfg: Config, run: RunFolder, texts: Mapping[str, Row]) -> None:
        self._cfg, self._run, self._texts = cfg, run, texts
        self._name, self._origin, self._given = (
            run.path.name,
            origin(cfg.data.corpus),
            answered(cfg),
        )
        self._asked = (before := before_this(cfg)) is not None or not self._given
        if not self._asked:
            self._origin = origin(cfg.data.questions)
        elif before is not None:
            self._name, self._origin = before.name, ""
            if before.config.is_file() and RunReader(before).cfg.game.questions == "proposer":
                self._origin = origin(RunReader(before).cfg.data.corpus)
        # its passages are others'
        ours = "cc-by-sa-4.0" if self._origin == "world:english" else "apache-2.0"
        self._license = ours if self._origin.startswith("world:") else "unknown"

    def source(self, question: str, target: str) -> tuple[Sequence[str], str, str, str]:
        """All right answers, the source, the split and the licence. InputError for a given question
        that its file lacks."""
        row = self._given.get((question, target))
        if self._asked:
            return (
                (target,) if row is None else row.answers,
                f"selfplay-{self._name}",
                SPLIT,
                self._license,
            )
        if row is None:
            found = f"{self._origin} has no {question!r} with {target!r}"
            raise InputError(
                "the questions that a run was given are in its data.questions",
                found,
                "restore that file",
            )
        return row.answers, row.source or self._origin, row.split or SPLIT, self._license

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
        began = {
            game["id"]: min((e["created"] for e in entries[game["id"]]), default=0.0)
            for game in games
        }
        for game in sorted(games, key=lambda game: (began[game["id"]], game["id"])):
            tried = self._attempts(game, entries[game["id"]], golds)
            plays.append(self._play(game, entries[game["id"]], tried))
            attempts += tried
        verdict = next(
            (v for v in (VALID, REJECTED) if any(play.verdict == v for play in plays)), VOID
        )
        main = min(
            (play for play in plays if play.verdict == verdict),
            key=lambda play: play.kind != "proposed",
        )
        rate = solve_rate(plays)
        return Record(
            id=identify(question, target),
            question=question,
            target=target,
            answers=list(golds),
            verdict=verdict,
            **{
                name: getattr(main, name)
                for name in ("rule", "proposer_version", "queries", "evidence")
            },
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
        ours = [entry for entry in entries if entry["kind"] == self._cfg.spec.asks]
        proposal = max(
            ours, key=lambda entry: (entry["file"] is not None, entry["issue"]), default=None
        )
        said = self._texts.get(proposal["id"], {}) if proposal else {}
        return PlayedGame(
            game=game["id"],
            kind=REPLAYED if game["kind"] == TRIED else game["kind"],
            verdict=game["verdict"],
            rule=game["rule"],
            proposer_version=game["proposer_version"],
            proposal=proposal["id"] if proposal else None,
            file=proposal["file"] if proposal else None,
            row=proposal["row"] if proposal else None,
            queries=called(said.get("queries", []), said.get("tools") or []),
            evidence=list(dict.fromkeys(said.get("documents", []))),
            solver_version=min(
                (a.version_min for a in tried if a.version_min is not None), default=None
            ),
            scored=sum(_scored(attempt) for attempt in tried),
            win_rate=game["win_rate"],
        )

    def _attempts(
        self, game: GameRow, entries: Sequence[EpisodeRow], golds: Sequence[str]
    ) -> list[Attempt]:
        """Another judge's words are not on record: where the win rate leaves one reading of them,
        they are that."""
        attempts = [
            self._attempt(game, entry, golds)
            for entry in entries
            if entry["kind"] in (self._cfg.spec.answers, GREEDY)
        ]
        scored = [attempt for attempt in attempts if _scored(attempt)]
        unsure = [attempt for attempt in scored if attempt.right is None]
        more = (game["win_rate"] or 0.0) * len(scored) - sum(
            attempt.right is True for attempt in scored
        )
        told = next(
            (
                word
                for word, number in ((False, 0), (True, len(unsure)))
                if abs(more - number) < 1e-6
            ),
            None,
        )
        if game["win_rate"] is None or told is None:
            return attempts
        return [
            replace(attempt, right=told) if attempt in unsure else attempt for attempt in attempts
        ]

    def _attempt(self, game: GameRow, entry: EpisodeRow, golds: Sequence[str]) -> Attempt:
        row: Row = {**entry}
        said = self._texts.get(entry["id"], {})
        answer = said.get("final")
        exact = answer is not None and same(answer, golds)
        decided = exact or answer is None or self._cfg.judge.kind == "exact"
        return Attempt(
            episode=entry["id"],
            game=game["id"],
            greedy=entry["kind"] == GREEDY,
            version_min=entry["policy_version_min"],
            version_max=entry["policy_version_max"],
            answer=answer,
            right=exact if decided and entry["outcome"] != Outcome.VOID.value else None,
            searches=len(said.get("queries", [])),
            step=entry["commit_step"],
            **{name: row[name] for name in ("state", "outcome", "cause", "reward", "file", "row")},
        )


def _scored(attempt: Attempt) -> bool:
    """Whether the attempt stands in the game's win rate."""
    return attempt.outcome != Outcome.VOID.value and not attempt.greedy
