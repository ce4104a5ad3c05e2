"""The pay of a stage's episodes, and which of them are trained."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from ssp.base.episode import Outcome, State
from ssp.base.gamespec import BATCH, ROW, SLOT, GameSpec, Payer, Payment, Play
from ssp.base.played import ASKS, Brief, Game
from ssp.config.schema import Config
from ssp.game import voids
from ssp.game.declaration import called, named
from ssp.learning.scored import Scored
from ssp.selfplay.credit import Credits
from ssp.selfplay.settled import Settled


def spread(cfg: Config, role: str, games: Sequence[Game], credits: Credits) -> int:
    """How many groups of a role have two episodes that earned differently."""
    groups = 0
    for play in cfg.spec.plays.values():
        if role in play.roles and cfg.spec.payment(play.name):
            groups += Paying(cfg, play, credits, Settled()).spread(role, games)
    return groups


@dataclass
class Priced:
    """An episode of a stage and what it earned.

    `scored`: the facts for its estimator; None without a reward, and for a past version's episode.
    `frozen`: nobody learns from it."""

    game: Game
    brief: Brief
    paid: Payment
    frozen: bool
    group: int = -1
    scored: Scored | None = None


class Paying:
    """Settles the episodes of one stage."""

    def __init__(self, cfg: Config, play: Play, credits: Credits, settled: Settled) -> None:
        self._cfg = cfg
        self._spec = cfg.spec
        self._play = play
        self._credits = credits
        self._settled = settled
        self._pay = self._spec.payment(play.name)
        self._pays: Payer = _unpaid if self._pay is None else self._pay.by
        self._asks = play.name == self._spec.asks
        self._answers = play.name == self._spec.answers

    def settle(self, games: Sequence[Game], asked_by: int | None) -> None:
        """Settle each episode: its row, and what the learner of its role gets."""
        for game in games:
            if self._answers and game.greedy is not None:
                paid = voids.paid(self._cfg, self._pays, game, game.greedy)
                state = State.VOIDED if paid.outcome is Outcome.VOID else State.KEPT
                self._settled.add(game.greedy, state, paid, None, {})
        episodes = self.priced(games)
        left = self._left(episodes)
        for one in episodes:
            state, paid = self._end(one, left.get(one.group, ""))
            if one.paid.outcome is Outcome.REJECTED and not one.frozen:
                whose = "" if self._asks else f"{one.brief.role}_"
                self._settled.counts[f"reject/{whose}{one.paid.cause}"] += 1
            versions = self._opponents(one.game, asked_by)
            self._settled.add(one.brief, state, paid, one.scored, versions)

    def priced(self, games: Sequence[Game]) -> list[Priced]:
        """The episodes of the stage, in the order of their games."""
        side = self._spec.side(self._play.name)
        episodes = []
        for game in games:
            frozen = game.frozen != "" and game.frozen == side
            for brief in self._spec.episodes(game, self._play.name):
                paid = voids.paid(self._cfg, self._pays, game, brief)
                episodes.append(Priced(game, brief, paid, frozen))
        self._score([one for one in episodes if not one.frozen])
        return episodes

    def spread(self, role: str, games: Sequence[Game]) -> int:
        """How many groups of a role have two episodes that earned differently."""
        groups: dict[int, list[Scored]] = defaultdict(list)
        for one in self.priced(games):
            if one.scored is not None and self._compared(one) and one.brief.role == role:
                groups[one.group].append(one.scored)
        return sum(self._credits.differ(role, known) for known in groups.values())

    def _score(self, episodes: Sequence[Priced]) -> None:
        """Put episodes into groups, and set the facts that an estimator may compare them by. Nobody
        graded an invalid question: it is compared with those that the newest policy graded."""
        newest = max((one.game.tried_by for one in episodes), default=-1)
        in_all = Counter(one.brief.role for one in episodes)
        graded_by = None if self._pay is None else self._pay.grader
        kinds = []
        for one in episodes:
            game = one.game
            version = newest if game.tried_by < 0 else game.tried_by
            role = self._spec.answerer
            if graded_by is not None:
                role = called(self._cfg, graded_by, str, named(game), game)
            kind = (game.hints.get("searches", ""), f"{role}:{version}")
            kinds.append(kind)
            if not one.paid.spare:
                self._settled.peers[one.brief.role, *kind] += 1
        numbers: dict[Hashable, int] = {}
        first = self._settled.groups
        for one, (asked, grader) in zip(episodes, kinds, strict=True):
            game = one.game
            decided_by = "" if graded_by is None else grader
            key = (one.brief.role, self._group_of(game), decided_by)
            one.group = numbers.setdefault(key, first + len(numbers))
            if one.paid.reward is None:
                continue
            turns, tokens = _turns(game, one.brief, one.paid.outcome)
            one.scored = Scored(
                reward=one.paid.reward,
                group=one.group,
                expected=self._expected(in_all[one.brief.role]),
                turns=turns,
                tokens=tokens,
                baseline=self._baseline(game),
                question=game.question,
                asked=asked,
                source=game.source,
                grader=grader,
                id=one.brief.id,
                block=one.brief.block.id,
                row=one.brief.row,
                version_min=one.brief.version_min,
            )
        self._settled.groups += len(numbers)

    def _group_of(self, game: Game) -> Hashable:
        """The key of the group that a role's episodes of the game are in."""
        if self._play.group == SLOT:
            return game.id
        if self._play.group == ROW:
            return game.number // self._cfg.game.proposals
        return BATCH

    def _expected(self, in_all: int) -> int:
        """How many episodes a group was to have."""
        times = self._play.episodes(self._cfg)
        if self._play.group == SLOT:
            return times
        if self._play.group == ROW:
            return times * self._cfg.game.proposals
        return in_all

    def _baseline(self, game: Game) -> float | None:
        """What the greedy attempt earned; None where there is none, NaN where it was void: then the
        estimator must hear that the baseline is lacking."""
        if not self._answers or game.greedy is None:
            return None
        reward = voids.paid(self._cfg, self._pays, game, game.greedy).reward
        return math.nan if reward is None else reward

    def _left(self, episodes: Sequence[Priced]) -> dict[int, str]:
        """Why a group is not trained, by group; a trained group is not in it."""
        groups: dict[int, list[Scored]] = defaultdict(list)
        roles = {}
        for one in episodes:
            if one.frozen:
                continue
            known = groups[one.group]
            roles[one.group] = one.brief.role
            if one.scored is not None and self._compared(one):
                known.append(one.scored)
        left = {}
        for group, known in groups.items():
            why = self._why_left(roles[group], known)
            if why:
                left[group] = why
        return left

    def _why_left(self, role: str, known: Sequence[Scored]) -> str:
        """Why a group is not trained, "" where it is; counts the groups of who answers."""
        taught = bool(known) and self._credits.teaches(role, known)
        why = "" if taught else "no_signal"
        if not self._answers:
            return why
        counts = self._settled.counts
        block = self._cfg.block(role)
        full = counts["groups"] >= max(block.batch, block.min_groups)
        if self._cfg.game.refill > 1 and taught and full:
            why = "surplus"
        counts["groups"] += self._credits.differ(role, known)
        if why:
            counts[f"left/{why}"] += 1
        return why

    def _end(self, one: Priced, left: str) -> tuple[State, Payment]:
        """The final state of an episode, and the pay that its row says."""
        paid = one.paid
        if paid.outcome is Outcome.VOID:
            return State.VOIDED, paid
        if one.frozen or self._pay is None:
            if paid.spare:  # a past version's spare episode has no reward of its own
                paid = replace(paid, reward=None)
            return State.KEPT, paid
        if paid.spare:
            return State.DROPPED, replace(paid, cause="surplus")
        if self._skipped(one):
            return State.DROPPED, replace(paid, cause="cut")
        if left:
            return State.DROPPED, replace(paid, cause=left)
        return State.QUEUED, paid

    def _skipped(self, one: Priced) -> bool:
        """Whether the episode ran out of tokens and is not to be learned, nor compared with."""
        overflow = self._cfg.block(one.brief.role).limits.overflow
        return one.brief.stopped == "tokens" and overflow == "skip"

    def _compared(self, one: Priced) -> bool:
        """Whether others of its group are compared with an episode that has a reward."""
        return not one.paid.spare and not self._skipped(one)

    def _opponents(self, game: Game, asked_by: int | None) -> dict[str, int | None]:
        """The lowest and the highest version of the opponent: of who tried the question for its
        asker, of who asked it for its answerer."""
        if self._asks:
            if not game.attempts:
                return {}
            return _versions(self._cfg, game.attempts, game.tried_by)
        asking = [] if game.proposal is None else [game.proposal]
        return _versions(self._cfg, asking, author(self._spec, game, asked_by))


def _unpaid(cfg: Config, game: Game, brief: Brief) -> Payment:
    """How an episode of an unpaid stage ended."""
    if brief.final is None:
        return Payment(Outcome.REJECTED, brief.stopped)
    return Payment(Outcome.SCORED)


def author(spec: GameSpec, game: Game, asked_by: int | None) -> int | None:
    """The version that wrote the question: a past one that is known, or this round's newest."""
    newest = game.proposal is not None and game.frozen != ASKS
    return asked_by if newest else game.asked_by


def _turns(
    game: Game, played: Brief, outcome: Outcome
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The reward of each trained turn of an attempt, () where only the sum is known; and the tokens
    of each turn.

    The reward of a turn without trained tokens counts with the last turn that has some. An attempt
    in several contexts has only the sum, and one credit."""
    grade = game.grades.get(played.id)
    earned = grade.turns if grade is not None and outcome is Outcome.SCORED else ()
    trained = [turn for turn, count in enumerate(played.turn_tokens) if count]
    if not earned or played.contexts > 1 or not trained:
        return (), (played.tokens,)
    kept = dict.fromkeys(trained, 0.0)
    for turn, reward in enumerate(earned):
        kept[turn if turn in kept else trained[-1]] += reward
    tokens = tuple(played.turn_tokens[turn] for turn in trained)
    return tuple(kept.values()), tokens


def _versions(cfg: Config, opponents: Sequence[Brief], given: int | None) -> dict[str, int | None]:
    """The lowest and the highest version of the other role: `given`, or in flight those of its
    episodes' tokens."""
    lowest = []
    highest = []
    for brief in opponents:
        if cfg.schedule.in_flight and brief.version_min >= 0:
            lowest.append(brief.version_min)
            highest.append(brief.version_max)
    return {
        "opponent_version_min": min(lowest, default=given),
        "opponent_version_max": max(highest, default=given),
    }
