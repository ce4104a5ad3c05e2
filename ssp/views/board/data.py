"""What the board shows, as rows with a key and a number that says when each last changed. A look at
a run that goes on reads what is new and little else; however often one looked, the rows in the end
are the same."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ssp.base import causes
from ssp.base.episode import ATTEMPT, EVAL
from ssp.base.extras import extra, there
from ssp.base.models import called
from ssp.config import crews
from ssp.config.heldout import held_out
from ssp.game import protocols
from ssp.game.protocols import Protocol
from ssp.record.ledger import Ledger
from ssp.record.ledger.rows import EpisodeRow, GameRow
from ssp.record.reader import BACK, RunReader, line_of
from ssp.record.runfolder import RunFolder
from ssp.search.router import NO_CORPUS
from ssp.selfplay.questions.reader import gathered, origin
from ssp.selfplay.questions.records import (
    REJECTED,
    VALID,
    VOID,
    Attempt,
    PlayedGame,
    Record,
    identify,
)
from ssp.views.board import parts

Row = dict[str, Any]
FORM = 1
"""The number of this form of the document."""
MOST = 500
"""Rows of one reply: what a browser takes in without being held up."""
DUELS = 40
_VERDICTS = (VALID, REJECTED, VOID)
GAMES = 3
"""Of a question that was played more often, the newest games are shown."""

UNUSED = frozenset({"transcript", "queries", "evidence", "file", "row", "version_min"})
"""Of a game and an attempt: what is shown in another form, or not at all."""

Piece = list[Any]
"""[class, label, text]; the class is prompt, think, search, evidence, final or text."""


class Board:
    """One run, looked at. `look`, then `since`. InputError for a folder that is no run."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.reader = run, RunReader(run)
        self.cfg = self.reader.cfg
        self._rows: dict[tuple[str, str], tuple[int, Any]] = {}
        self._seq = 0
        self._names: defaultdict[str, list[str]] = defaultdict(list)
        self._metrics = parts.Tail(run.metrics)
        self._timeline = parts.Spans(run.timeline)
        self._ledger: Ledger | None = None
        self._stamp: tuple[Any, ...] = ()
        self._known: set[str] = set()
        self._questions: dict[str, list[str]] = {}
        self._scores: dict[str, tuple[int, float]] = {}
        self._duels: list[str] = []
        self._standing: Any = None
        if there("league"):
            ratings = extra("league", "ratings of versions", "standing")
            self._standing = ratings.Standing(self.cfg.spec.answerer)

    def look(self) -> None:
        """Take in what is new. InputError for a file that is not a run's."""
        self._set("run", "", self._about())
        self._figures()
        self._accounts()
        told = parts.yardstick(self.run.yardstick)
        if told is not None:
            self._set("yardstick", "", told)
        if self._timeline.look():
            self._set("timeline", "", self._timeline.shown())

    def since(self, number: int, most: int | None = MOST) -> Row:
        """At most `most` rows that changed after `number`, oldest first; with `more` there are
        others, after `seq`."""
        new = []
        for (kind, key), (seq, value) in reversed(self._rows.items()):
            if seq <= number:
                break
            new.append((seq, [kind, key, value]))
        new.reverse()
        sent = new[:most]
        last, shown = sent[-1][0] if sent else self._seq, [row for _, row in sent]
        return {"form": FORM, "seq": last, "more": len(sent) < len(new), "rows": shown}

    def games(self, questions: Sequence[str]) -> tuple[list[GameRow], list[EpisodeRow]]:
        """The ledger's rows of all games about these questions (by id), and of their episodes; of
        unknown ones none."""
        names = [game for question in questions for game in self._questions.get(question, ())]
        return self._ledger.of_games(names) if self._ledger is not None and names else ([], [])

    def chosen(self, most: int) -> list[str]:
        """At most so many questions: the newest duels, then others evenly over the run, those that
        were played first."""
        rows = self._rows
        others = sorted(
            self._questions, key=lambda id: (id not in self._scores, rows["questions", id][1][5])
        )
        spread = others[:: max(1, len(others) // most)]
        return list(dict.fromkeys([*reversed(self._duels), *spread]))[:most]

    def _set(self, kind: str, key: str, value: Any) -> None:
        known = self._rows.get((kind, key))
        if known is None or known[1] != value:
            self._seq += 1
            self._rows.pop((kind, key), None)  # the order of the rows is that of their changes
            self._rows[kind, key] = (self._seq, value)

    def _about(self) -> Row:
        cfg = self.cfg
        blocks = {role: getattr(cfg, role) for role in cfg.roles}
        evaluation: Row | None = None
        if cfg.data.eval:
            first, nowhere = cfg.data.eval[0], cfg.data.eval[0].corpus == NO_CORPUS
            # training never searches there
            elsewhere = not nowhere and first.corpus != cfg.data.corpus
            place = None if nowhere else origin(first.corpus)
            evaluation = {
                "name": first.name,
                "corpus": place,
                "elsewhere": elsewhere,
                "held": held_out(cfg),
            }
        settings = {"seed": cfg.seed, "protocol": cfg.protocol, "questions": cfg.game.questions}
        settings |= {"verifier": cfg.referee.verifier, "judge": cfg.judge.kind}
        settings |= {
            f"{role}: {key}": getattr(b, key)
            for role, b in blocks.items()
            for key in ("algorithm", "loss")
        }
        settings |= {f"{role}: policy": block.policy for role, block in blocks.items()}
        about = {
            "name": self.run.name,
            "called": called(self.run.path),
            "live": self.run.held,
            "steps": cfg.steps,
        }
        bounds = {role: crews.bound(cfg, role) for role in cfg.roles}
        about |= {"attempts": cfg.game.attempts, "roles": list(cfg.roles), "bounds": bounds}
        return {**about, "evaluation": evaluation, "settings": settings}

    def _figures(self) -> None:
        for text in self._metrics.lines():
            line = line_of(self.run.metrics, text)
            step, role, time = line.pop("step"), line.pop("role"), float(line.pop("time", 0.0))
            for name in ("not_finite", BACK):
                line.pop(name, None)
            names = self._names[role]
            names += [name for name in line if name not in names]
            self._set("names", role, list(names))
            self._set(
                "figures",
                f"{role}:{step}",
                [step, time, *(parts.short(line.get(name)) for name in names)],
            )

    def _accounts(self) -> None:
        """The ledger, where it was written since the last look."""
        if not self.run.ledger.is_file():
            return
        status = self.run.ledger.stat()
        log = self.run.ledger.with_name(self.run.ledger.name + "-wal")
        written = log.stat() if log.is_file() else status
        stamp = (status.st_ino, status.st_mtime_ns, written.st_mtime_ns, written.st_size)
        if stamp == self._stamp:
            return
        if self._ledger is None or self._stamp[:1] != (status.st_ino,):
            self.close()  # the copy of a ledger that lies elsewhere is exchanged as a whole
            self._ledger = Ledger(self.run.ledger, readonly=True)
        games, episodes = self._ledger.of_games(
            [id for id in self._ledger.judged() if id not in self._known]
        )
        self._settle(games, episodes)
        tally = {role: states for role, states in self._ledger.tally().items() if role != EVAL}
        counts = self._ledger.outcomes(self.cfg.spec.asks)
        known = {
            name[5:]: list(causes.find(name[5:])) for name in counts if name.startswith("void/")
        }
        issued = {role: number for role, number in self._ledger.issued().items() if role != EVAL}
        self._set(
            "accounts", "", {"issued": issued, "states": tally, "outcomes": counts, "causes": known}
        )
        self._stamp = stamp  # only now: after an error all this is asked again

    def _settle(self, games: Sequence[GameRow], episodes: Sequence[EpisodeRow]) -> None:
        of: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
        for row in episodes:
            of[row["game_id"]].append(row)
        for game in sorted(games, key=lambda game: (game["round"], game["id"])):
            self._round(game["round"], game, of[game["id"]])
            if game["question"] is not None:
                self._ask(game, of[game["id"]])
        self._known.update(game["id"] for game in games)
        self._set("duels", "", list(self._duels))
        if self._standing is None:
            self._set("league", "", {"missing": "ssp/extras/league"})
        elif games:
            self._standing.add(games, episodes)
            self._set("league", "", self._standing.shown())

    def _round(self, step: int, game: GameRow, episodes: Sequence[EpisodeRow]) -> None:
        """[step, lowest and highest version of who asks, the same of who answers, games, valid
        ones, past ones of either]: of who played it for a learner, then whom these met. Who once
        wrote a replayed question is neither."""
        _, old = self._rows.get(
            ("rounds", str(step)), (0, [step, None, None, None, None, 0, 0, [], []])
        )
        ends, past = list(old[1:5]), list(old[7:])
        for at, role in enumerate((self.cfg.spec.asker, self.cfg.spec.answerer)):
            seen = {False: {*ends[2 * at : 2 * at + 2]}, True: {*past[at]}}
            for row in (row for row in episodes if row["role"] == role and row["file"]):
                seen[bool(row["past"])].update(
                    (row["policy_version_min"], row["policy_version_max"])
                )
            # -1: it wrote nothing
            own, past[at] = (sorted(each - {None, -1}) for each in (seen[False], seen[True]))
            ends[2 * at : 2 * at + 2] = [own[0], own[-1]] if own else [None, None]
        self._set(
            "rounds",
            str(step),
            [step, *ends, old[5] + 1, old[6] + (game["verdict"] == VALID), *past],
        )

    def _ask(self, game: GameRow, episodes: Sequence[EpisodeRow]) -> None:
        """[question, target, verdict, rule, proposer version, newest step, games, attempts scored,
        solve rate]."""
        id = identify(game["question"] or "", game["target"])
        self._questions.setdefault(id, []).append(game["id"])
        fresh = [
            game["question"],
            game["target"],
            game["verdict"],
            game["rule"],
            game["proposer_version"],
        ]
        fresh += [0, 0, 0, None]
        _, old = self._rows.get(("questions", id), (0, fresh))
        told = old if _VERDICTS.index(old[2]) <= _VERDICTS.index(game["verdict"]) else fresh
        if game["win_rate"] is not None:
            tried = [e for e in episodes if e["kind"] == ATTEMPT and e["outcome"] != VOID]
            scored, right = self._scores.get(id, (0, 0.0))
            self._scores[id] = scored + len(tried), right + game["win_rate"] * len(tried)
            self._duels = [*(name for name in self._duels if name != id), id][-DUELS:]
        scored, right = self._scores.get(id, (0, 0.0))
        rate = round(right / scored, 6) if scored else None
        self._set(
            "questions", id, [*told[:5], max(old[5], game["round"]), old[6] + 1, scored, rate]
        )

    def close(self) -> None:
        """Let the ledger go."""
        if self._ledger is not None:
            self._ledger.close()


def details(
    board: Board, questions: Sequence[str], games: int = GAMES
) -> dict[str, dict[str, Any]]:
    """Question → its record, the newest `games` about it with their attempts and transcripts (see
    `Piece`). Unknown questions are left out. InputError when an episodes file is missing."""
    protocol, spec = protocols.get(board.cfg.protocol), board.cfg.spec
    records = gathered(board.cfg, board.run, *board.games(questions))
    asks = spec.plays[spec.asks].prompt if spec.asks else ""
    newest = {record.id: {play.game for play in _kept(record, games)} for record in records}
    files: dict[str, list[dict[str, Any]]] = {}

    def shown(role: str, episode: PlayedGame | Attempt) -> dict[str, Any]:
        told, text = (
            {name: value for name, value in vars(episode).items() if name not in UNUSED},
            None,
        )
        if episode.file:
            if episode.file not in files:
                files[episode.file] = board.reader.columns(
                    episode.file, ["text", "response_at", "tools"]
                )
            row = files[episode.file][episode.row or 0]
            text = pieces(
                protocol.naming(row["tools"] or []), role, row["text"], row["response_at"]
            )
        if isinstance(episode, PlayedGame):
            told |= {"searches": len(episode.queries)}
        return {**told, "text": text}

    return {
        record.id: {
            **{
                name: getattr(record, name)
                for name in ("id", "question", "target", "difficulty", "history")
            },
            "games": len(record.plays),
            "plays": [
                {**shown(asks, one), "number": number}
                for number, one in enumerate(record.plays, 1)
                if one.game in newest[record.id]
            ],
            "attempts": [
                shown(spec.answering.prompt, one)
                for one in record.attempts
                if one.game in newest[record.id]
            ],
        }
        for record in records
    }


def _kept(record: Record, games: int) -> list[PlayedGame]:
    """The newest games, and, where none of these has one, the newest with a proposal and the newest
    that was played."""
    kept = record.plays[-games:]
    for others in (
        [p for p in record.plays if p.proposal],
        [p for p in record.plays if p.win_rate is not None],
    ):
        if not any(play in kept for play in others):
            kept = [*others[-1:], *kept]
    return kept


def pieces(protocol: Protocol, role: str, text: str, response_at: int) -> list[Piece]:
    """A transcript in order: its prompt, then a piece a segment."""
    classes = {protocol.role(role).final: "final", protocol.search.tag: "search"}
    classes |= {protocol.observation_form.tag: "evidence", "think": "think"}
    prompt = (
        [["prompt", "prompt", text[:response_at].strip()]] if text[:response_at].strip() else []
    )
    found = [
        [
            classes.get(part.kind, "text"),
            part.kind,
            part.text + ("" if part.closed else " (not closed)"),
        ]
        for part in protocol.parse(text[response_at:])
    ]
    return [*prompt, *found]
