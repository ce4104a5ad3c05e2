"""What the board shows, as rows with a key and a number that says when each last changed. A look
reads little beside what is new; the rows in the end do not depend on how often one looked."""

from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ssp.base import causes
from ssp.base.episode import ATTEMPT, EVAL
from ssp.base.errors import InvariantError
from ssp.base.extras import extra, there
from ssp.base.models import called
from ssp.config import crews
from ssp.config.heldout import held_out
from ssp.config.schema import Config
from ssp.record.ledger import Ledger
from ssp.record.ledger.rows import EpisodeRow, GameRow, OfGames
from ssp.record.reader import BACK, RunReader, Tail, line_of
from ssp.record.runfolder import RunFolder
from ssp.search.router import NO_CORPUS
from ssp.selfplay.questions.reader import origin
from ssp.selfplay.questions.records import REJECTED, VALID, VOID, identify
from ssp.telemetry.figures import find
from ssp.views.board import parts
from ssp.views.board.alarms import Alarms
from ssp.views.board.verdict import FirstScreen

Row = dict[str, Any]
FORM = 1
"""The number of this form of the document."""
MOST = 500
"""Rows of one reply: what a browser takes in without being held up."""
DUELS = 40
QUESTIONS = 50_000
"""Questions that are shown: those that were asked last."""
SHARED = ("run", "names", "figures", "verdict")
"""Kinds of rows that are shown of a run which lies over another one."""
_VERDICTS = (VALID, REJECTED, VOID)

Entry = tuple[tuple[str, str], tuple[int, Any]]
"""A row: (kind, key), and (number, value)."""


class Board:
    """One run, looked at. `look`, then `since`. InputError for a folder that is no run.

    `others`: runs whose figures and verdicts lie over it."""

    def __init__(self, run: RunFolder, others: Sequence[RunFolder] = ()) -> None:
        self.run = run
        self.others = [Board(other) for other in others]
        self.reader = RunReader(run)
        self.cfg = self.reader.cfg
        self._rows: dict[tuple[str, str], tuple[int, Any]] = {}
        self._listed: list[Entry] = []  # empty after a change
        self._seq = 0
        self._names: defaultdict[str, list[str]] = defaultdict(list)
        self._meaning: dict[str, str] = {}
        self._lines: defaultdict[str, dict[int, list[Any]]] = defaultdict(dict)
        self._alarms = Alarms(self.cfg)
        self._metrics = Tail(run.metrics)
        self._timeline = parts.Spans(run.timeline)
        self._ledger: Ledger | None = None
        self._stamp: tuple[Any, ...] = ()
        self._known: set[tuple[int, int]] = set()
        self._questions: OrderedDict[str, list[str]] = OrderedDict()  # asked last comes last
        self._scores: dict[str, tuple[int, float]] = {}
        self._duels: OrderedDict[str, None] = OrderedDict()
        self._standing: Any = None
        if there("league"):
            ratings = extra("league", "ratings of versions", "standing")
            self._standing = ratings.Standing(self.cfg.spec.answerer)

    def look(self) -> None:
        """Take in what is new. InputError for a file that is not a run's."""
        self._set("run", "", self._about())
        self._figures()
        self._accounts()
        _, accounts = self._rows.get(("accounts", ""), (0, {}))
        judged = FirstScreen(self.cfg, self.series, accounts).shown()
        self._set("verdict", "", {**judged, "alarms": self._alarms.shown()})
        for place, other in enumerate(self.others, start=1):
            other.look()
            for (kind, key), (_, value) in other.rows():
                if kind in SHARED:
                    self._set("other", f"{place}/{kind}/{key}", value)
        told = parts.yardstick(self.run.yardstick)
        if told is not None:
            self._set("yardstick", "", told)
        if self._timeline.look():
            self._set("timeline", "", self._timeline.shown())

    def series(self, role: str, name: str) -> list[tuple[int, float]]:
        """(step, value) of a figure, by step."""
        names = self._names[role]
        if name not in names:
            return []
        at = names.index(name) + 2  # behind the step and the time
        points = []
        for step, line in sorted(self._lines[role].items()):
            if len(line) > at and line[at] is not None:
                points.append((step, line[at]))
        return points

    def rows(self) -> list[Entry]:
        """Every row as it is now, the oldest first."""
        if not self._listed:
            self._listed = list(self._rows.items())
        return self._listed

    def since(self, number: int, most: int | None = MOST) -> Row:
        """At most `most` rows that changed after `number`, oldest first. `more`: there are others,
        after `seq`."""
        rows = self.rows()
        start = bisect_right(rows, number, key=lambda row: row[1][0])
        sent = rows[start:] if most is None else rows[start : start + most]
        last = sent[-1][1][0] if sent else self._seq
        shown = [[kind, key, value] for (kind, key), (_, value) in sent]
        more = start + len(sent) < len(rows)
        return {"form": FORM, "seq": last, "more": more, "rows": shown}

    def games(self, questions: Sequence[str]) -> OfGames:
        """The ledger's rows of all games about these questions, given by id, and of their episodes.
        An unknown question has none."""
        names = [game for question in questions for game in self._questions.get(question, ())]
        return self._ledger.of_games(names) if self._ledger is not None and names else ([], [])

    def chosen(self, most: int) -> list[str]:
        """At most `most` questions: the newest duels, then others, evenly spread over the run.
        Those that were played come before those that were not."""

        def order(id: str) -> tuple[bool, int]:
            _, question = self._rows["questions", id]
            return id not in self._scores, question[5]

        others = sorted(self._questions, key=order)
        spread = others[:: max(1, len(others) // most)]
        return list(dict.fromkeys([*reversed(self._duels), *spread]))[:most]

    def _set(self, kind: str, key: str, value: Any) -> None:
        """Note a row's value; one that changed moves to the end."""
        known = self._rows.get((kind, key))
        if known is None or known[1] != value:
            self._seq += 1
            self._rows.pop((kind, key), None)
            self._rows[kind, key] = (self._seq, value)
            self._listed = []

    def _about(self) -> Row:
        """What the run was started with, and whether it still plays."""
        cfg = self.cfg
        evaluation: Row | None = None
        if cfg.data.eval:
            first = cfg.data.eval[0]
            nowhere = first.corpus == NO_CORPUS
            evaluation = {
                "name": first.name,
                "corpus": None if nowhere else origin(first.corpus),
                # training never searches there
                "elsewhere": not nowhere and first.corpus != cfg.data.corpus,
                "held": held_out(cfg),
            }
        settings = {"seed": cfg.seed, "protocol": cfg.protocol, "questions": cfg.game.questions}
        settings |= {"verifier": cfg.referee.verifier, "judge": cfg.judge.kind}
        for role in cfg.roles:
            block = cfg.block(role)
            settings |= {f"{role}: algorithm": block.algorithm, f"{role}: loss": block.loss}
        settings |= {f"{role}: policy": cfg.block(role).policy for role in cfg.roles}
        return {
            "name": self.run.name,
            "called": called(self.run.path),
            "live": self.run.held,
            "steps": cfg.steps,
            "attempts": cfg.game.attempts,
            "questions": QUESTIONS,
            "roles": list(cfg.roles),
            "asks": cfg.spec.asker,
            "answers": cfg.spec.answerer,
            "bounds": {role: crews.bound(cfg, role) for role in cfg.roles},
            "evaluation": evaluation,
            "referee": _referee(cfg),
            "settings": settings,
        }

    def _figures(self) -> None:
        """Take in the new lines of metrics.jsonl."""
        for text in self._metrics.lines():
            line = line_of(self.run.metrics, text)
            step = line.pop("step")
            role = line.pop("role")
            time = float(line.pop("time", 0.0))
            for name in ("not_finite", BACK):
                line.pop(name, None)
            names = self._names[role]
            for name in line:
                if name not in names:
                    names.append(name)
                    self._explain(role, name)
            self._set("names", role, list(names))
            self._alarms.see(step, role, line)
            values = [parts.short(line.get(name)) for name in names]
            row = [step, time, *values]
            self._lines[role][step] = row
            self._set("figures", f"{role}:{step}", row)

    def _explain(self, role: str, name: str) -> None:
        """Note what a figure means. One that is not in the list, as of another version, has no
        meaning here."""
        with suppress(InvariantError):
            figure, _ = find(name, role)
            unit = f" ({figure.unit})" if figure.unit else ""
            self._meaning[name] = figure.text + unit
            self._set("meaning", "", dict(self._meaning))

    def _accounts(self) -> None:
        """Take in the ledger, where it was written since the last look."""
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
        ledger = self._ledger
        for games, episodes in ledger.rounds(self._known):
            self._settle(games, episodes)
        self._set("duels", "", list(self._duels))
        if self._standing is None:
            self._set("league", "", {"missing": "ssp/extras/league"})
        elif self._known:
            self._set("league", "", self._standing.shown())

        outcomes = ledger.outcomes(self.cfg.spec.asks)
        voids = [name.removeprefix("void/") for name in outcomes if name.startswith("void/")]
        accounts = {
            "issued": {role: count for role, count in ledger.issued().items() if role != EVAL},
            "states": {role: states for role, states in ledger.tally().items() if role != EVAL},
            "outcomes": outcomes,
            "causes": {cause: list(causes.find(cause)) for cause in voids},
        }
        self._set("accounts", "", accounts)
        self._stamp = stamp  # only now: after an error all this is asked again

    def _settle(self, games: Sequence[GameRow], episodes: Sequence[EpisodeRow]) -> None:
        """Take in a round's games that have a verdict, by id, with their episodes."""
        of: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
        for row in episodes:
            of[row["game_id"]].append(row)
        for game in games:
            self._round(game, of[game["id"]])
            if game["question"] is not None:
                self._ask(game, of[game["id"]])
            self._known.add((game["round"], game["incarnation"]))
        if self._standing is not None:
            self._standing.add(games, episodes)

    def _round(self, game: GameRow, episodes: Sequence[EpisodeRow]) -> None:
        """Count a game in its round's row: [step, lowest and highest version of who asks, the same
        of who answers, games, valid ones, past versions of who asks, of who answers]. Lowest and
        highest are of those that played for a learner; who once wrote a replayed question is in
        neither."""
        step = game["round"]
        nothing: list[Any] = [step, None, None, None, None, 0, 0, [], []]
        _, old = self._rows.get(("rounds", str(step)), (0, nothing))
        ends = list(old[1:5])
        past = list(old[7:])
        for at, role in enumerate((self.cfg.spec.asker, self.cfg.spec.answerer)):
            place = slice(2 * at, 2 * at + 2)
            own = {*ends[place]}
            earlier = {*past[at]}
            for row in episodes:
                if row["role"] == role and row["file"]:
                    versions = earlier if row["past"] else own
                    versions |= {row["policy_version_min"], row["policy_version_max"]}
            nobody = {None, -1}  # -1: it wrote nothing
            past[at] = sorted(earlier - nobody)
            live = sorted(own - nobody)
            ends[place] = [live[0], live[-1]] if live else [None, None]
        games = old[5] + 1
        valid = old[6] + (game["verdict"] == VALID)
        self._set("rounds", str(step), [step, *ends, games, valid, *past])

    def _ask(self, game: GameRow, episodes: Sequence[EpisodeRow]) -> None:
        """Count a game in its question's row: [question, target, verdict, rule, proposer version,
        newest step, games, attempts scored, solve rate, whether a transcript is on record]."""
        id = identify(game["question"] or "", game["target"] or "")
        self._questions.setdefault(id, []).append(game["id"])
        self._questions.move_to_end(id)
        if len(self._questions) > QUESTIONS:
            oldest, _ = self._questions.popitem(last=False)
            self._scores.pop(oldest, None)
            del self._rows["questions", oldest]
            self._listed = []
        fresh: list[Any] = [game["question"], game["target"], game["verdict"], game["rule"]]
        fresh += [game["proposer_version"], 0, 0, 0, None, False]
        _, old = self._rows.get(("questions", id), (0, fresh))
        better = _VERDICTS.index(game["verdict"]) < _VERDICTS.index(old[2])
        told = fresh if better else old

        scored, right = self._scores.get(id, (0, 0.0))
        if game["win_rate"] is not None:
            tried = sum(row["kind"] == ATTEMPT and row["outcome"] != VOID for row in episodes)
            scored += tried
            right += game["win_rate"] * tried
            self._scores[id] = scored, right
            self._duels[id] = None
            self._duels.move_to_end(id)
            if len(self._duels) > DUELS:
                self._duels.popitem(last=False)
        rate = round(right / scored, 6) if scored else None
        newest = max(old[5], game["round"])
        games = old[6] + 1
        kept = old[9] or any(row["file"] for row in episodes)
        self._set("questions", id, [*told[:5], newest, games, scored, rate, kept])

    def close(self) -> None:
        """Let the ledger go."""
        for other in self.others:
            other.close()
        if self._ledger is not None:
            self._ledger.close()


def _referee(cfg: Config) -> Row:
    """Who decides whether a question is valid, and whether an answer is right."""
    if not cfg.spec.asker:
        return {}
    told = {"rules": ", ".join(cfg.referee.rules), "verifier": cfg.referee.verifier}
    return {**told, "evidence": cfg.referee.evidence, "judge": cfg.judge.kind}
