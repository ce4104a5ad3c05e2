"""Which games a round plays: rows of the data (target answers to ask about, or questions to solve),
and how a solver batch is filled when some proposals are invalid.

Promises a new seeded order of the rows each epoch, and that a game number always means the same
row. In the lineage of a checkpoint no batch of rows is handed out twice or skipped.

Values of `game.batch`: with `dummy`, invalid slots stay empty (SSP pads them with prompts whose
advantage is zero; an empty slot is the same gradient without the compute). With `resample`, the
round asks about further targets until it has `enough`. With `replay`, earlier questions refill the
empty slots. With `replay_reset`, the pool of these is also emptied every ten rounds. With
`replay_learnable` a question is drawn the more likely, the more its last attempts differed: by
p (1 - p) of its last win rate p, and never one that all or none of them solved.

SSP's code duplicates valid questions where resampling falls short, ends the epoch where nothing is
valid, lets popular questions multiply in a pool without limit that a restart loses, and empties it
after rounds 9, 19, ...; its `mini_epochs` and reward-based filter do not exist here."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np

from ssp.base.episode import GIVEN, REPLAYED
from ssp.base.errors import InvariantError, hold
from ssp.base.gamespec import Keep
from ssp.base.played import ANSWERS, Game
from ssp.base.seeds import generator
from ssp.base.values import Values
from ssp.config.schema import Config, GameConfig
from ssp.game.declaration import called, named
from ssp.selfplay.mix import HopMix
from ssp.selfplay.questions.mixed import GivenQuestions
from ssp.selfplay.rows import TargetRow as TargetRow

RESAMPLED = ("resample", "resample_all")
"""Values of `game.batch` that ask about further targets."""
REPLAY = ("replay", "replay_reset", "replay_learnable")
"""Values of `game.batch` that use the pool."""
REPLAY_SIZE = 4096  # questions that the pool holds
NOTHING: Mapping[str, str] = {}


class Targets:
    """Makes games from a fixed list of rows, a batch of games at a time.

    Each drawn row becomes `each` successive games. `mark`: a digest of the rows and of how they
    are asked; a cursor is valid for this mark alone. `beside`: the digests of other inputs that
    the settings only name: corpora, start models, evaluation files. `given`: questions that stand
    among those which are asked about the rows. `most_right`: see `ssp.selfplay.mix`."""

    def __init__(
        self,
        items: Sequence[TargetRow],
        batch: int,
        seed: int,
        mark: str = "",
        each: int = 1,
        beside: Mapping[str, str] = NOTHING,
        given: GivenQuestions | None = None,
        most_right: float = 1.0,
    ) -> None:
        hold(items, "a run needs at least one row to play", "an empty list", "check data.targets")
        if batch % each:
            raise InvariantError(f"a batch of {batch} games is no multiple of {each} a row")
        self.given = given or GivenQuestions()
        self._items = list(items)
        self._beside = dict(beside)
        self._batch = batch
        self._seed = seed
        self._mark = mark
        self._each = each
        self._next = 0
        self._open: list[int] = []
        self._taken: dict[int, list[int]] = {}
        self._orders: dict[int, list[int]] = {}
        hops = {item.hints.get("searches", "") for item in items}
        self._mix = HopMix(most_right, hops, seed)
        self._drawn: dict[int, list[int]] = {}  # the rows of batches, where rows are passed over
        self._at = 0  # the first row that no batch came to

    def saw(self, games: Sequence[Game]) -> Values:
        """Hear of the games of a settled round; called in the order of rounds. Its figures."""
        return self._mix.saw(games)

    def take(self, round_: int, incarnation: int) -> list[Game]:
        """Take the next batch of games for round `round_`; a round may take several."""
        if not self._open:
            self._open.append(self._next)
            self._next += 1
        batch = self._open.pop(0)
        self._taken.setdefault(round_, []).append(batch)
        games = []
        for number in self._numbers(batch):
            item = self.item(number)
            id_ = f"g{number:07d}-i{incarnation}"
            game = Game(id_, number, item.target, item.hints)
            game.question = item.question
            game.golds = item.golds
            game.rubric = item.rubric
            game.row = item.row
            game.source = item.hints.get("source", "")
            if item.question:  # a given question needs no referee
                game.valid = True
                game.kind = GIVEN
            games.append(game)
        return games

    def state(self, round_: int) -> dict[str, Any]:
        """The cursor after the rounds up to `round_`; called in the order of rounds. The batches
        that later rounds have taken count as open."""
        self._taken = {later: batches for later, batches in self._taken.items() if later > round_}
        left = sorted([*self._open, *chain.from_iterable(self._taken.values())])
        end = self._next
        more: dict[str, Any] = {"beside": self._beside} if self._beside else {}
        if self._mix.acts:
            self._drawn = {batch: rows for batch, rows in self._drawn.items() if batch in left}
            drawn = {str(batch): rows for batch, rows in self._drawn.items()}
            more |= {"mix": self._mix.state(), "drawn": drawn, "at": self._at}
        while left and left[-1] == end - 1 and not self._mix.acts:
            end = left.pop()
        return {"next": end, "open": left, "mark": self._mark, **more}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a cursor that `state` made. InputError for a cursor of other rows, or of a run
        with another corpus or model; a cursor without a mark took nothing yet and fits any."""
        same = state.get("mark", self._mark) == self._mark
        rule = "a run goes on with the rows and the words of the protocol that it was started with"
        named = "data.targets, data.questions (a file, a bank) or the protocol's file"
        step = "restore it, or start a new run with resume=never"
        hold(same, rule, f"{named} has changed since", step)
        before = state.get("beside", {})  # an older run has none
        changed = [name for name, now in self._beside.items() if before.get(name, now) != now]
        rule = "a run goes on with the corpus and the models that it was started with"
        hold(not changed, rule, f"what is in {', '.join(changed)} has changed since", step)
        self._next = state["next"]
        self._open = list(state["open"])
        self._taken.clear()
        self._drawn = {int(batch): rows for batch, rows in state.get("drawn", {}).items()}
        self._at = state.get("at", 0)
        self._mix.restore(state.get("mix", {}))

    def _numbers(self, batch: int) -> list[int]:
        """The numbers of a batch's games."""
        size = self._batch // self._each
        rows: Sequence[int] = range(batch * size, (batch + 1) * size)
        if self._mix.acts:
            if batch not in self._drawn:
                self._drawn[batch] = self._draw(size)
            rows = self._drawn[batch]
        return [row * self._each + place for row in rows for place in range(self._each)]

    def _draw(self, size: int) -> list[int]:
        """The next rows that are not passed over."""
        rows: list[int] = []
        while len(rows) < size:
            hop = self.item(self._at * self._each).hints.get("searches", "")
            if self._mix.takes(self._at, hop):
                rows.append(self._at)
            self._at += 1
        return rows

    def item(self, number: int) -> TargetRow:
        """The row that game `number` plays."""
        epoch, place = divmod(number // self._each, len(self._items))
        if epoch not in self._orders:
            draw = generator(self._seed, "targets", epoch)
            order = draw.permutation(len(self._items)).tolist()
            # Two are kept, as a batch may lie in two epochs.
            self._orders = dict([*self._orders.items(), (epoch, order)][-2:])
        return self._items[self._orders[epoch][place]]


@dataclass(frozen=True)
class Remembered:
    """A question that was played before, with its last win rate, the version that wrote it, and
    the document that it is about."""

    question: str
    target: str
    win_rate: float
    asked_by: int | None = None
    source: str = ""


class Batches:
    """Chooses the games that the solver plays in a round."""

    def __init__(self, cfg: GameConfig, size: int, seed: int) -> None:
        self._cfg = cfg
        self._size = size
        self._seed = seed
        self._pool: dict[tuple[str, str], Remembered] = {}

    @property
    def extra(self) -> int:
        """Further proposer batches that a round may ask for."""
        return self._cfg.resample_attempts if self._cfg.batch in RESAMPLED else 0

    def enough(self, games: Sequence[Game], given: int = 0) -> bool:
        """Whether enough proposals are valid to ask for no further ones, beside given questions."""
        valid = given + sum(game.valid for game in games)
        return valid >= int(self._size * self._cfg.resample_min_valid)

    def choose(
        self,
        round_: int,
        games: Sequence[Game],
        incarnation: int,
        earlier: Sequence[Game] = (),
        given: Sequence[Game] = (),
    ) -> list[Game]:
        """Choose and mark up to `size` games that were not chosen yet, in id order: the `given`
        questions of the batch, the valid ones, then refills. `earlier`: what earlier batches of the
        round had beside `games`."""
        open_ = [game for game in games if game.valid and not (game.chosen or game.passed_over)]
        chosen = [*given, *open_[: self._size - len(given)]]
        for game in chosen:
            game.chosen = True
        if self._cfg.batch in REPLAY:
            chosen += self._refill(round_, chosen, incarnation, [*earlier, *given])
        return chosen

    def remember(self, round_: int, games: Sequence[Game]) -> None:
        """Take the round's games into the pool, and reset it when its time has come.

        A question that the proposer asked becomes the pool's newest, even if it was known. A
        replayed question that is still there keeps its place and gets its new win rate. A game
        that a past solver graded is left out: the newest solver's further game counts."""
        if self._cfg.batch not in REPLAY:
            return
        for game in games:
            key = (game.question, game.target)
            if game.win_rate is None or game.frozen == ANSWERS:
                continue
            if game.number >= 0:
                asked_by = game.asked_by if game.proposal is None else game.proposal.version_max
                self._pool.pop(key, None)
                self._pool[key] = Remembered(*key, game.win_rate, asked_by, game.source)
            elif key in self._pool:
                self._pool[key] = replace(self._pool[key], win_rate=game.win_rate)
        if self._cfg.batch == "replay_reset" and (round_ + 1) % self._cfg.replay_reset_every == 0:
            self._pool.clear()
        surplus = max(0, len(self._pool) - REPLAY_SIZE)
        for key in list(self._pool)[:surplus]:  # the newest stay
            del self._pool[key]

    def state(self) -> list[dict[str, Any]]:
        """The pool as plain data, for state.json."""
        return [asdict(item) for item in self._pool.values()]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """The inverse of `state`."""
        self._pool = {(item["question"], item["target"]): Remembered(**item) for item in state}

    def _refill(
        self,
        round_: int,
        chosen: Sequence[Game],
        incarnation: int,
        earlier: Sequence[Game],
    ) -> list[Game]:
        """Chosen games about drawn questions of the pool, for the slots that `chosen` leaves. No
        question is asked twice in a round."""
        taken = {(game.question, game.target) for game in (*chosen, *earlier)}
        pool = [item for key, item in self._pool.items() if key not in taken]
        first = len(earlier)
        draw = generator(self._seed, "replay", round_, *([first] if first else []))
        picks = self._drawn(draw, pool, self._size - len(chosen))
        games = []
        for slot, pick in enumerate(sorted(picks), start=first):
            item = pool[pick]
            id_ = f"r{round_:05d}x{slot:03d}-i{incarnation}"
            game = Game(id_, -1 - slot, item.target)
            game.question = item.question
            game.asked_by = item.asked_by
            game.source = item.source
            game.kind = REPLAYED
            game.valid = game.chosen = True
            games.append(game)
        return games

    def _drawn(self, draw: np.random.Generator, pool: Sequence[Remembered], most: int) -> list[int]:
        """Places in the pool of at most so many questions, each once."""
        if self._cfg.batch != "replay_learnable":
            anyone: list[int] = draw.permutation(len(pool))[:most].tolist()
            return anyone
        weights = np.array([item.win_rate * (1.0 - item.win_rate) for item in pool])
        number = min(most, int(np.count_nonzero(weights)))
        if number == 0:
            return []
        shares = weights / weights.sum()
        drawn: list[int] = draw.choice(len(pool), number, replace=False, p=shares).tolist()
        return drawn


def keep_best(cfg: Config, stage: Keep, games: Sequence[Game]) -> None:
    """Keep the first valid game with the highest score about each row; pass over the others."""
    rows: dict[int, list[Game]] = defaultdict(list)
    for game in games:
        rows[game.number // cfg.game.proposals].append(game)
    for about in rows.values():
        competing = [game for game in about if game.valid]
        if stage.among is not None:
            among = stage.among
            competing = [
                game for game in competing if called(cfg, among, object, named(game), cfg, game)
            ]
        scores = [called(cfg, stage.best, Real, named(game), cfg, game) for game in competing]
        best = competing[scores.index(max(scores))] if competing else None
        for game in competing:
            game.passed_over = game is not best
