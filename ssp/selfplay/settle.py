"""From graded games to ledger rows and training batches: outcomes, rewards, drops (laws 2 and 3).

Promises that every episode of the round gets exactly one row, and that a void enters no batch."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.base.episode import PROPOSER, SOLVER, Outcome, State
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.config import own
from ssp.config.role import RoleConfig
from ssp.config.schema import Config
from ssp.game.rewards import proposer as proposer_rewards
from ssp.selfplay.records import Brief, Game, Match, Published, TrainBatch, TrainItem
from ssp.telemetry.clock import Clock

TOO_FEW = "too_few_attempts"
"""Void of a proposal of which fewer than half the attempts were scored."""

End = tuple[Outcome, str, float | None]
"""How an episode ended, its cause, and its reward (None for a void)."""


@dataclass
class Settled:
    """A settled round: rows, the items each learner gets, counts by cause, bytes. `paid`: (group, reward, searches) of each
    episode with a reward, trained or not. `ended`: how many episodes, by role and by whether a fault took them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    games: list[dict[str, Any]] = field(default_factory=list)
    items: dict[str, list[TrainItem]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    paid: dict[str, list[tuple[int, float, int]]] = field(default_factory=lambda: defaultdict(list))
    nbytes: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, bool]] = field(default_factory=Counter)
    step: int = 0

    def add(
        self,
        brief: Brief,
        state: State,
        end: End,
        group: int | None,
        baseline: float | None = None,
        turns: tuple[float, ...] = (),
        **more: Any,
    ) -> None:
        """One episode's row, and what its learner gets of it; without a `group`, nothing, and no figure counts it."""
        outcome, cause, reward = end
        self.ended[brief.role, outcome is Outcome.VOID] += 1
        self.rows.append(brief.entry(state, outcome, cause, reward=reward, **more))
        if outcome is Outcome.VOID:
            self.counts[f"void/{cause}"] += 1
        if reward is None or group is None:
            return
        self.paid[brief.role].append((group, reward, brief.searches))
        if state is State.QUEUED:
            item = TrainItem(brief.id, brief.block, brief.row, reward, group, brief.version_min, baseline, turns)
            self.items[brief.role].append(item)
            self.nbytes[brief.role] += brief.length * BYTES_A_TOKEN

    def batch(self, role: str, more: Mapping[str, float]) -> TrainBatch:
        """What the learner of `role` gets; `more`: figures of the role beside its own."""
        rewards = [item.reward for item in self.items[role]]
        figures = {"reward/mean": sum(rewards) / len(rewards) if rewards else 0.0, **self.figures(role), **more}
        return TrainBatch(role, self.step, self.items[role], self.nbytes[role], figures)

    def figures(self, role: str) -> dict[str, float]:
        """Mean reward and searches of the role's paid episodes, the share of groups of several without spread, and that of
        episodes which a fault took, where it took any."""
        if not (paid := self.paid[role]):
            return {}
        groups = defaultdict[int, list[float]](list)
        for group, reward, _ in paid:
            groups[group].append(reward)
        flat = [len(set(rewards)) == 1 for rewards in groups.values() if len(rewards) > 1]
        return {
            "reward/all": sum(reward for _, reward, _ in paid) / len(paid),
            "searches": sum(searches for _, _, searches in paid) / len(paid),
            **({"groups/flat": sum(flat) / len(flat)} if flat else {}),
            **({"voided": void / (void + self.ended[role, False])} if (void := self.ended[role, True]) else {}),
        }


@dataclass
class Round:
    """One round. `games`: of the data; `refills`: whose question was asked before. `proposer` (None where questions are
    given), `solver`: the newest weights. `asked`, `tried`: who wrote and who tries which questions of the newest batch;
    `further`: batches after the first. Once it is `settled`, the curriculum adds `figures`."""

    number: int
    clock: Clock
    games: list[Game] = field(default_factory=list)
    refills: list[Game] = field(default_factory=list)
    proposer: Published | None = None
    solver: Published = field(default_factory=lambda: Published(-1, None))
    asked: list[Match] = field(default_factory=list)
    tried: list[Match] = field(default_factory=list)
    further: int = 0
    settled: Settled = field(default_factory=Settled)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The update that it is for."""
        return self.number + 1

    @property
    def played(self) -> list[Game]:
        """All games of the round."""
        return [*self.games, *self.refills]

    @property
    def asked_by(self) -> int | None:
        """The newest proposer's version, None where nobody proposes."""
        return None if self.proposer is None else self.proposer.version


def settle(cfg: Config, games: Sequence[Game], proposer_version: int | None, step: int = 0) -> Settled:
    """Settle a graded round, of update `step`; `proposer_version` asked (None: nobody). Sets each win rate."""
    settled = Settled(step=step)
    for group, game in enumerate(games):
        # Who wrote the question: a past version is known, the newest asked in this round.
        newest = game.proposal is not None and game.frozen != PROPOSER
        asked_by = proposer_version if newest else game.asked_by
        if game.chosen:
            game.win_rate = proposer_rewards.win_rate([right(game, p) for p in game.attempts], cfg.game.attempts)
            _settle_attempts(cfg, game, group, asked_by, settled)
        row: dict[str, Any] = {"id": game.id, "question": game.question or None, "rule": game.rule or game.void_cause}
        row["verdict"] = "void" if game.void_cause else "valid" if game.valid else "rejected"
        row |= {"attempts": len(game.attempts), "win_rate": game.win_rate}
        settled.games.append(row | {"proposer_version": None if game.proposal is None else asked_by})
    _settle_proposals(cfg, games, settled)
    return settled


def _settle_attempts(cfg: Config, game: Game, group: int, asked_by: int | None, settled: Settled) -> None:
    ends = [_ended(cfg, game, played) for played in game.attempts]
    earned, baseline = _earned_by(game, ends), None
    if game.greedy is not None:
        end = _ended(cfg, game, game.greedy)
        # A void has no number, but the learner must hear that there is no baseline.
        baseline = math.nan if end[2] is None else end[2]
        settled.add(game.greedy, State.VOIDED if end[2] is None else State.KEPT, end, None)
    left = "" if _acts(cfg.solver, earned, baseline) else "no_signal"
    if game.frozen != SOLVER:
        if cfg.game.refill > 1 and not left and settled.counts["groups"] >= cfg.solver.batch:
            left = "surplus"
        spreads = _differ(cfg.solver.algorithm, earned)
        settled.counts.update(["groups"] * spreads + [f"left/{left}"] * bool(left))
    opponent = _versions(cfg, [] if game.proposal is None else [game.proposal], asked_by)
    for played, (outcome, cause, reward) in zip(game.attempts, ends, strict=True):
        state = State.DROPPED if left else State.QUEUED
        if reward is None or game.frozen == SOLVER:
            state = State.VOIDED if reward is None else State.KEPT
        elif outcome is Outcome.REJECTED:
            settled.counts[f"reject/solver_{cause}"] += 1
        end = outcome, left if state is State.DROPPED else cause, reward
        turns = _turns(game, played, outcome)
        settled.add(played, state, end, None if game.frozen == SOLVER else group, baseline, turns, **opponent)


def _ended(cfg: Config, game: Game, brief: Brief) -> End:
    """How an attempt ended; without a reward where a fault took it."""
    if brief.outcome is Outcome.VOID:
        return Outcome.VOID, brief.cause, None
    grade = game.grades[brief.id]
    if grade.right is None:
        return Outcome.VOID, grade.void_cause, None
    if brief.final is None:
        return Outcome.REJECTED, brief.stopped, cfg.solver.invalid_reward
    return Outcome.SCORED, "", grade.reward


Earned = tuple[float, tuple[float, ...]]
"""What an episode earned: in all, and by turns (empty where only the sum is known)."""


def _earned_by(game: Game, ends: Sequence[End]) -> set[Earned]:
    """What the attempts at a question earned; voids earned nothing."""
    earned = set[Earned]()
    for played, (outcome, _, reward) in zip(game.attempts, ends, strict=True):
        if reward is not None:
            earned.add((reward, _turns(game, played, outcome)))
    return earned


def _turns(game: Game, played: Brief, outcome: Outcome) -> tuple[float, ...]:
    return game.grades[played.id].turns if outcome is Outcome.SCORED else ()


def _differ(algorithm: str, earned: Collection[Earned]) -> bool:
    """Whether two of a group earned differently: in all, or by turns where the algorithm tells turns apart."""
    if own.says(algorithm, "by_turn"):
        return len(set(earned)) > 1
    return len({reward for reward, _ in earned}) > 1


def _acts(block: RoleConfig, earned: Collection[Earned], baseline: float | None = None) -> bool:
    """Whether anything of a role's loss could act on a group of which the episodes earned `earned`.

    If nothing can, the group is dropped. `baseline`: what the greedy answer earned (NaN: it is void), None without one.
    A term of the loss acts on every token, and so does a KL that is taken off the finished advantages. A KL in the
    reward acts through the comparison: it makes equal rewards differ."""
    kl = block.kl
    if block.entropy_coef > 0 or block.llds_coef > 0 or (kl.coef > 0 and kl.place != "reward"):
        return True
    if baseline is None:
        compared = own.says(block.algorithm, "baseline") == "group"
        return not compared or _differ(block.algorithm, earned) or kl.coef > 0
    # ReMax compares what was still to earn with the baseline, turn by turn.
    # That is 0 everywhere only if the last turn earned all of it, and as much as the greedy answer.
    differs = any(reward != baseline or any(turns[:-1]) for reward, turns in earned)
    return not math.isnan(baseline) and (differs or kl.coef > 0)


def spread(cfg: Config, game: Game) -> bool:
    """Whether two of the newest solver's attempts at a question, graded, earned differently."""
    ends = [_ended(cfg, game, played) for played in game.attempts]
    return game.frozen != SOLVER and _differ(cfg.solver.algorithm, _earned_by(game, ends))


def right(game: Game, attempt: Brief) -> bool | None:
    """Right or wrong; None for an attempt that is void, in play or at the judge."""
    grade = game.grades.get(attempt.id)
    return None if grade is None or attempt.outcome is Outcome.VOID else grade.right


def _settle_proposals(cfg: Config, games: Sequence[Game], settled: Settled) -> None:
    """Proposals of a round, once it is known what each earned. A game alone with its target is a group of its own (SSP);
    of several in a group none is trained that has no other one to compare with. Those of past proposers are in none."""
    asked = [(game, game.proposal) for game in games if game.proposal is not None]
    earned = {game.id: _earned(cfg, game, proposal) for game, proposal in asked}
    groups: dict[str, int] = {}
    numbers: dict[int, int] = {}
    paid = defaultdict[int, set[Earned]](set)
    for game, _ in asked:
        if game.frozen != PROPOSER:
            group = groups[game.id] = numbers.setdefault(game.number // cfg.game.proposals, len(numbers))
            reward = earned[game.id]
            if reward is not None:
                paid[group].add((reward, ()))
    for game, proposal in asked:
        mine, reward = groups.get(game.id), earned[game.id]
        outcome, cause = (Outcome.SCORED, "") if game.valid else (Outcome.REJECTED, game.rule)
        if game.void_cause or (reward is None and game.valid and game.chosen):
            state, outcome, cause = State.VOIDED, Outcome.VOID, game.void_cause or TOO_FEW
        elif mine is None:
            state = State.KEPT
        else:
            if not game.valid:
                settled.counts[f"reject/{game.rule}"] += 1
            state = State.QUEUED
            if reward is None:
                state, cause, reward = State.DROPPED, "surplus", None if game.valid else cfg.proposer.invalid_reward
            elif cfg.game.proposals > 1 and not _acts(cfg.proposer, paid[mine]):
                state, cause = State.DROPPED, "no_signal"
        opponent = _versions(cfg, game.attempts, game.solver_version) if game.attempts else {}
        settled.add(proposal, state, (outcome, cause, reward), mine, None, (), **opponent)


def _earned(cfg: Config, game: Game, brief: Brief) -> float | None:
    """The reward that a proposal is trained with; None for one that is void or surplus."""
    if game.valid and game.chosen and game.win_rate is not None and not game.void_cause:
        facts = {"question": game.question, "target": game.target, "searches": brief.searches}
        return game.guide * proposer_rewards.reward(cfg.proposer.reward, game.win_rate, cfg.proposer, facts)
    if game.valid or game.void_cause or cfg.game.batch == "resample":  # then another target took its place (SSP)
        return None
    return cfg.proposer.invalid_reward


def _versions(cfg: Config, opponents: Sequence[Brief], given: int | None) -> dict[str, int | None]:
    """Lowest and highest version of the other role: the one that was given, in flight those of its episodes' tokens."""
    written = [brief for brief in opponents if cfg.schedule.in_flight and brief.version_min >= 0]
    return {
        "opponent_version_min": min((brief.version_min for brief in written), default=given),
        "opponent_version_max": max((brief.version_max for brief in written), default=given),
    }


def all_played(games: Sequence[Game]) -> Iterator[Brief]:
    """Every episode of the round: proposals, then attempts."""
    for game in games:
        if game.proposal is not None:
            yield game.proposal
        yield from game.attempts
        if game.greedy is not None:
            yield game.greedy
