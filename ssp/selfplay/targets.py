"""Which games a round plays: rows of the data (target answers to ask about, or questions to solve),
and what a solver batch is made of when some proposals are invalid (docs/game.md says what differs
from SSP).

Promises a new seeded order of the rows each epoch, that a game number always means the same row,
and that in the lineage of a checkpoint no batch of rows is handed out twice or skipped.

`dummy`: invalid slots stay empty (SSP pads them with prompts whose advantage is zero; an empty slot
is the same gradient without the compute). `resample`: the round asks about further targets until it
has `enough`. `replay`: empty slots are refilled from earlier questions. `replay_reset`: the same,
and the pool is emptied every ten rounds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ssp.base.episode import GIVEN, REPLAYED
from ssp.base.errors import InvariantError, hold
from ssp.base.gamespec import Keep
from ssp.base.played import ANSWERS, Game
from ssp.base.seeds import generator
from ssp.config.schema import Config, GameConfig

RESAMPLED = ("resample", "resample_all")
"""Values of `game.batch` that ask about further targets."""
REPLAY = ("replay", "replay_reset")
"""Values of `game.batch` that use the pool."""
REPLAY_SIZE = 4096  # questions that the pool holds
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class TargetRow:
    """One row: a target answer and what else the proposer's prompt is told (`hints`), or a question
    with its answers and what a good one has (`rubric`)."""

    target: str
    question: str = ""
    golds: tuple[str, ...] = ()
    hints: dict[str, str] = field(default_factory=dict)
    rubric: str = ""


class Targets:
    """Games of a round from a fixed list of rows, a batch of games at a time; each row that is
    drawn is `each` games in a row. `mark` stands for what the rows are and how they are asked: a
    cursor counts in nothing else. `beside`: what else a run is played with that its settings only
    name, each with its digest: corpora, start models, files of evaluations."""

    def __init__(
        self,
        items: Sequence[TargetRow],
        batch: int,
        seed: int,
        mark: str = "",
        each: int = 1,
        beside: Mapping[str, str] = NOTHING,
    ) -> None:
        hold(items, "a run needs at least one row to play", "an empty list", "check data.targets")
        if batch % each:
            raise InvariantError(f"a batch of {batch} games is no multiple of {each} a row")
        self._items, self._batch, self._seed, self._mark, self._each = (
            list(items),
            batch,
            seed,
            mark,
            each,
        )
        self._beside = dict(beside)
        self._next = 0
        self._open: list[int] = []
        self._taken: dict[int, list[int]] = {}
        self._orders: dict[int, list[int]] = {}

    def take(self, round_: int, incarnation: int) -> list[Game]:
        """The next batch of games, now round `round_`'s; a round may take several."""
        if not self._open:
            self._open.append(self._next)
            self._next += 1
        batch = self._open.pop(0)
        self._taken.setdefault(round_, []).append(batch)
        games = []
        for number in range(batch * self._batch, (batch + 1) * self._batch):
            item, id_ = self.item(number), f"g{number:07d}-i{incarnation}"
            made = Game(
                id_, number, item.target, item.hints, question=item.question, golds=item.golds
            )
            made.rubric, made.source = item.rubric, item.hints.get("source", "")
            if item.question:  # which needs no referee
                made.valid, made.kind = True, GIVEN
            games.append(made)
        return games

    def state(self, round_: int) -> dict[str, Any]:
        """The cursor after the rounds up to `round_`: what later rounds have taken counts as open.
        In order of rounds."""
        self._taken = {later: batches for later, batches in self._taken.items() if later > round_}
        left = sorted(
            [*self._open, *(batch for batches in self._taken.values() for batch in batches)]
        )
        end = self._next
        while left and left[-1] == end - 1:
            end = left.pop()
        beside = {"beside": self._beside} if self._beside else {}
        return {"next": end, "open": left, "mark": self._mark, **beside}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`. InputError for a cursor in other rows, or beside another corpus
        or model; one that took nothing yet is in none."""
        same = state.get("mark", self._mark) == self._mark
        rule = "a run goes on with the rows and the words of the protocol that it was started with"
        found = (
            "data.targets, data.questions (a file, a bank) or the protocol's file has changed since"
        )
        hold(same, rule, found, "restore it, or start a new run with resume=never")
        before = state.get("beside", {})  # an older run has none
        changed = [name for name, now in self._beside.items() if before.get(name, now) != now]
        rule = "a run goes on with the corpus and the models that it was started with"
        found = f"what is in {', '.join(changed)} has changed since"
        hold(not changed, rule, found, "restore it, or start a new run with resume=never")
        self._next, self._open = state["next"], list(state["open"])
        self._taken.clear()

    def item(self, number: int) -> TargetRow:
        """The row that game `number` plays."""
        epoch, place = divmod(number // self._each, len(self._items))
        if epoch not in self._orders:
            order = generator(self._seed, "targets", epoch).permutation(len(self._items)).tolist()
            # a batch may lie in two epochs
            self._orders = dict([*self._orders.items(), (epoch, order)][-2:])
        return self._items[self._orders[epoch][place]]


@dataclass(frozen=True)
class Remembered:
    """A question that was played before: how often it was won last, and the proposer's version that
    wrote it."""

    question: str
    target: str
    win_rate: float
    asked_by: int | None = None


class Batches:
    """Chooses the games that the solver plays in a round."""

    def __init__(self, cfg: GameConfig, size: int, seed: int) -> None:
        self._cfg, self._size, self._seed = cfg, size, seed
        self._pool: dict[tuple[str, str], Remembered] = {}

    @property
    def extra(self) -> int:
        """Further proposer batches that a round may ask for."""
        return self._cfg.resample_attempts if self._cfg.batch in RESAMPLED else 0

    def enough(self, games: Sequence[Game]) -> bool:
        """True when so many proposals are valid that no further ones are asked for."""
        return sum(game.valid for game in games) >= int(self._size * self._cfg.resample_min_valid)

    def choose(self, round_: int, games: Sequence[Game], incarnation: int) -> list[Game]:
        """Up to `size` games that were not chosen yet, in id order: the valid ones, then refills.
        Marks the chosen ones."""
        open_ = [game for game in games if game.valid and not (game.chosen or game.passed_over)]
        chosen = open_[: self._size]
        for game in chosen:
            game.chosen = True
        if self._cfg.batch in REPLAY:
            chosen += self._refill(round_, chosen, incarnation)
        return chosen

    def remember(self, round_: int, games: Sequence[Game]) -> None:
        """Take the round's games into the pool; reset it when its time has come. A question that
        the proposer asked is the pool's newest, also when it was known; a replayed one keeps its
        place, if it has one, and gets the win rate of now. What a past solver graded counts by the
        newest's further game."""
        if self._cfg.batch not in REPLAY:
            return
        for game in games:
            key = (game.question, game.target)
            if game.win_rate is None or game.frozen == ANSWERS:
                continue
            if game.number >= 0:
                asked_by = game.asked_by if game.proposal is None else game.proposal.version_max
                self._pool.pop(key, None)
                self._pool[key] = Remembered(*key, game.win_rate, asked_by)
            elif key in self._pool:
                self._pool[key] = replace(self._pool[key], win_rate=game.win_rate)
        if self._cfg.batch == "replay_reset" and (round_ + 1) % self._cfg.replay_reset_every == 0:
            self._pool.clear()
        for key in list(self._pool)[: max(0, len(self._pool) - REPLAY_SIZE)]:  # the newest stay
            del self._pool[key]

    def state(self) -> list[dict[str, Any]]:
        """The pool as plain data, for state.json."""
        return [asdict(item) for item in self._pool.values()]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """The inverse of `state`."""
        self._pool = {(item["question"], item["target"]): Remembered(**item) for item in state}

    def _refill(self, round_: int, chosen: Sequence[Game], incarnation: int) -> list[Game]:
        taken = {(game.question, game.target) for game in chosen}
        pool = [item for key, item in self._pool.items() if key not in taken]
        picks = generator(self._seed, "replay", round_).permutation(len(pool))[
            : self._size - len(chosen)
        ]
        games = []
        for slot, pick in enumerate(sorted(picks.tolist())):
            item, id_ = pool[pick], f"r{round_:05d}x{slot:03d}-i{incarnation}"
            known = Game(
                id_,
                -1 - slot,
                item.target,
                question=item.question,
                asked_by=item.asked_by,
                kind=REPLAYED,
            )
            games.append(replace(known, valid=True, chosen=True))
        return games


def keep_best(cfg: Config, stage: Keep, games: Sequence[Game]) -> None:
    """Of the games about one row keep the first with the highest score; the others are passed
    over."""
    rows: dict[int, list[Game]] = defaultdict(list)
    for game in games:
        rows[game.number // cfg.game.proposals].append(game)
    for about in rows.values():
        competing = [game for game in about if stage.among is None or stage.among(cfg, game)]
        best = max(competing, key=lambda game: stage.best(cfg, game), default=None)
        for game in competing:
            game.passed_over = game is not best
