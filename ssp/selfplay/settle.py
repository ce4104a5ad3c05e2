"""From graded games to ledger rows and training batches: outcomes, rewards, drops (laws 2 and 3).

Promises that every episode of the round gets exactly one row, and that a void enters no batch."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.base.episode import PROPOSER, SOLVER, Outcome, State
from ssp.base.played import Brief, Game, Ref
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.config.crews import learns
from ssp.config.schema import Config
from ssp.game.rewards import proposer as proposer_rewards
from ssp.learning.samples import Sample
from ssp.learning.scored import Credit, Scored
from ssp.selfplay.credit import Credits
from ssp.selfplay.records import Match, Published, TrainBatch
from ssp.telemetry.clock import Clock

TOO_FEW = "too_few_attempts"
"""Void of a proposal of which fewer than half the attempts were scored."""

End = tuple[Outcome, str, float | None]
"""How an episode ended, its cause, and its reward (None for a void)."""


@dataclass(frozen=True)
class Queued:
    """An episode that its role's learner gets, and what its estimator is told of it."""

    brief: Brief
    scored: Scored


@dataclass
class Settled:
    """A settled round: rows, what each learner gets, counts by cause, bytes. `paid`: (group,
    reward, searches) of each episode with a reward, trained or not. `ended`: how many episodes, by
    role and by whether a fault took them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    games: list[dict[str, Any]] = field(default_factory=list)
    queued: dict[str, list[Queued]] = field(default_factory=lambda: defaultdict(list))
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    blocks: dict[str, dict[str, Ref]] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[str] = field(default_factory=Counter)
    paid: dict[str, list[tuple[int, float, int]]] = field(default_factory=lambda: defaultdict(list))
    nbytes: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, bool]] = field(default_factory=Counter)
    step: int = 0

    def add(self, brief: Brief, state: State, end: End, scored: Scored | None, **more: Any) -> None:
        """One episode's row, and what its learner gets of it; one that is in no group counts in no
        figure."""
        outcome, cause, reward = end
        if state is State.QUEUED and brief.version_min < 0:
            # it has no model token, so no version and no gradient
            state, cause = State.DROPPED, "no_signal"
        self.ended[brief.role, outcome is Outcome.VOID] += 1
        self.rows.append(brief.entry(state, outcome, cause, reward=reward, **more))
        if outcome is Outcome.VOID:
            self.counts[f"void/{cause}"] += 1
        if reward is None or scored is None:
            return
        self.paid[brief.role].append((scored.group, reward, brief.searches))
        if state is State.QUEUED:
            self.queued[brief.role].append(Queued(brief, scored))
            self.nbytes[brief.role] += brief.length * BYTES_A_TOKEN

    def give_credit(self, role: str, credits: Sequence[Credit]) -> None:
        """Make the samples of a role, whose queued episodes have these credits."""
        for queued, credit in zip(self.queued[role], credits, strict=True):
            brief, scored = queued.brief, queued.scored
            sample = Sample(
                id=brief.id,
                block=brief.block.id,
                row=brief.row,
                reward=scored.reward,
                group=scored.group,
                credit=credit,
                version_min=brief.version_min,
                turns=scored.turns,
                baseline=scored.baseline,
            )
            self.samples[role].append(sample)
            self.blocks[role][brief.block.id] = brief.block.ref

    def batch(self, role: str, more: Mapping[str, float]) -> TrainBatch:
        """What the learner of `role` gets; `more`: figures of the role beside its own."""
        rewards = [sample.reward for sample in self.samples[role]]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        figures = {"reward/mean": mean, **self.figures(role), **more}
        return TrainBatch(
            role, self.step, self.samples[role], self.blocks[role], self.nbytes[role], figures
        )

    def figures(self, role: str) -> dict[str, float]:
        """Mean reward and searches of the role's paid episodes, the share of groups of several
        without spread, and that of episodes which a fault took, where it took any."""
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
            **(
                {"voided": void / (void + self.ended[role, False])}
                if (void := self.ended[role, True])
                else {}
            ),
        }


@dataclass
class Round:
    """One round. `games`: of the data; `refills`: whose question was asked before. `proposer` (None
    where questions are given), `solver`: the newest weights. `asked`, `tried`: who wrote and who
    tries which questions of the newest batch; `further`: batches after the first. Once it is
    `settled`, the curriculum adds `figures`."""

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


def settle(
    cfg: Config,
    games: Sequence[Game],
    proposer_version: int | None,
    step: int = 1,
    credits: Credits | None = None,
) -> Settled:
    """Settle a graded round, of update `step`; `proposer_version` asked (None: nobody). Sets each
    win rate. `credits`: the run's estimators, which hear of each round once (None: new ones)."""
    credits = credits or Credits(cfg)
    settled = Settled(step=step)
    for group, game in enumerate(games):
        # Who wrote the question: a past version is known, the newest asked in this round.
        newest = game.proposal is not None and game.frozen != PROPOSER
        asked_by = proposer_version if newest else game.asked_by
        if game.chosen:
            game.win_rate = proposer_rewards.win_rate(
                [right(game, p) for p in game.attempts], cfg.game.attempts
            )
            _settle_attempts(cfg, game, group, asked_by, settled, credits)
        row: dict[str, Any] = {
            "id": game.id,
            "question": game.question or None,
            "rule": game.rule or game.void_cause,
        }
        row["verdict"] = "void" if game.void_cause else "valid" if game.valid else "rejected"
        row |= {"attempts": len(game.attempts), "win_rate": game.win_rate}
        settled.games.append(
            row | {"proposer_version": None if game.proposal is None else asked_by}
        )
    _settle_proposals(cfg, games, settled, credits)
    for role in cfg.roles:
        scored = [queued.scored for queued in settled.queued[role]]
        # Who does not learn now keeps its episodes, and its estimator does not hear of them.
        given = credits.settle(role, scored) if learns(cfg, role, step) else [()] * len(scored)
        settled.give_credit(role, given)
    return settled


def _settle_attempts(
    cfg: Config, game: Game, group: int, asked_by: int | None, settled: Settled, credits: Credits
) -> None:
    baseline = None
    if game.greedy is not None:
        end = _ended(cfg, game, game.greedy)
        # A void has no number, but the estimator must hear that there is no baseline.
        baseline = math.nan if end[2] is None else end[2]
        settled.add(game.greedy, State.VOIDED if end[2] is None else State.KEPT, end, None)
    ends = [_ended(cfg, game, played) for played in game.attempts]
    scored = _scored_attempts(cfg, game, group, ends, baseline)
    known = [one for one, played in zip(scored, game.attempts, strict=True) if one is not None]
    left = ""
    if game.frozen != SOLVER:  # nobody learns from what a past solver played
        left = "" if known and credits.teaches(SOLVER, known) else "no_signal"
        if cfg.game.refill > 1 and not left and settled.counts["groups"] >= cfg.solver.batch:
            left = "surplus"
        settled.counts["groups"] += credits.differ(SOLVER, known)
        if left:
            settled.counts[f"left/{left}"] += 1
    opponent = _versions(cfg, [] if game.proposal is None else [game.proposal], asked_by)
    for played, (outcome, cause, reward), one in zip(game.attempts, ends, scored, strict=True):
        state = State.DROPPED if left else State.QUEUED
        if reward is None or game.frozen == SOLVER:
            state = State.VOIDED if reward is None else State.KEPT
        elif outcome is Outcome.REJECTED:
            settled.counts[f"reject/solver_{cause}"] += 1
        end = outcome, left if state is State.DROPPED else cause, reward
        settled.add(played, state, end, None if game.frozen == SOLVER else one, **opponent)


def _scored_attempts(
    cfg: Config, game: Game, group: int, ends: Sequence[End], baseline: float | None
) -> list[Scored | None]:
    """The attempts at a question as their estimator sees them; None for a void."""
    scored: list[Scored | None] = []
    for played, (outcome, _, reward) in zip(game.attempts, ends, strict=True):
        if reward is None:
            scored.append(None)
            continue
        turns, tokens = _turns(game, played, outcome)
        made = Scored(
            reward=reward,
            group=group,
            expected=cfg.game.attempts,
            turns=turns,
            tokens=tokens,
            baseline=baseline,
            question=game.question,
            asked=game.hints.get("searches", ""),
            grader=game.solver_version,
        )
        scored.append(made)
    return scored


def _turns(
    game: Game, played: Brief, outcome: Outcome
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """What each trained turn of an attempt earned, () where only the sum is known; and its tokens.

    What a turn without trained tokens earned counts with the last one that has some. Of an attempt
    in several contexts only the sum is known: it has one credit."""
    earned = game.grades[played.id].turns if outcome is Outcome.SCORED else ()
    trained = [turn for turn, count in enumerate(played.turn_tokens) if count]
    if not earned or played.contexts > 1 or not trained:
        return (), (played.tokens,)
    kept = dict.fromkeys(trained, 0.0)
    for turn, reward in enumerate(earned):
        kept[turn if turn in kept else trained[-1]] += reward
    return tuple(kept.values()), tuple(played.turn_tokens[turn] for turn in trained)


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


def spread(cfg: Config, game: Game, credits: Credits) -> bool:
    """Whether two of the newest solver's attempts at a question, graded, earned differently."""
    ends = [_ended(cfg, game, played) for played in game.attempts]
    scored = [one for one in _scored_attempts(cfg, game, 0, ends, None) if one is not None]
    return game.frozen != SOLVER and credits.differ(SOLVER, scored)


def right(game: Game, attempt: Brief) -> bool | None:
    """Right or wrong; None for an attempt that is void, in play or at the judge."""
    grade = game.grades.get(attempt.id)
    return None if grade is None or attempt.outcome is Outcome.VOID else grade.right


def _settle_proposals(
    cfg: Config, games: Sequence[Game], settled: Settled, credits: Credits
) -> None:
    """Proposals of a round, once it is known what each earned. A game alone with its target is a
    group of its own (SSP); of several in a group none is trained that has no other one to compare
    with. Those of past proposers are in none."""
    asked = [(game, game.proposal) for game in games if game.proposal is not None]
    earned = {game.id: _earned(cfg, game, proposal) for game, proposal in asked}
    scored = _scored_proposals(cfg, [game for game, _ in asked], earned)
    groups: dict[int, list[Scored]] = defaultdict(list)
    for id_, one in scored.items():
        if earned[id_] is not None:
            groups[one.group].append(one)
    taught = {group for group, known in groups.items() if credits.teaches(PROPOSER, known)}
    for game, proposal in asked:
        mine, reward = scored.get(game.id), earned[game.id]
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
                state, cause, reward = (
                    State.DROPPED,
                    "surplus",
                    None if game.valid else cfg.proposer.invalid_reward,
                )
            elif mine.group not in taught:
                state, cause = State.DROPPED, "no_signal"
        opponent = _versions(cfg, game.attempts, game.solver_version) if game.attempts else {}
        settled.add(proposal, state, (outcome, cause, reward), mine, **opponent)


def _scored_proposals(
    cfg: Config, games: Sequence[Game], earned: Mapping[str, float | None]
) -> dict[str, Scored]:
    """The newest proposer's proposals as their estimator sees them, by game. Nobody graded what is
    not valid: it is compared with what the newest solver graded."""
    mine = [game for game in games if game.frozen != PROPOSER]
    newest = max((game.solver_version for game in mine), default=-1)
    kinds = {}
    for game in mine:
        grader = newest if game.solver_version < 0 else game.solver_version
        kinds[game.id] = (game.hints.get("searches", ""), grader)
    peers = Counter(kinds.values())
    numbers: dict[int, int] = {}
    scored = {}
    for game in mine:
        reward = earned[game.id]
        asked, grader = kinds[game.id]
        scored[game.id] = Scored(
            reward=cfg.proposer.invalid_reward if reward is None else reward,
            group=numbers.setdefault(game.number // cfg.game.proposals, len(numbers)),
            expected=cfg.game.proposals,
            tokens=(game.proposal.tokens if game.proposal else 1,),
            question=game.question,
            asked=asked,
            peers=peers[kinds[game.id]],
            grader=grader,
        )
    return scored


def _earned(cfg: Config, game: Game, brief: Brief) -> float | None:
    """The reward that a proposal is trained with; None for one that is void or surplus."""
    if game.valid and game.chosen and game.win_rate is not None and not game.void_cause:
        facts = {"question": game.question, "target": game.target, "searches": brief.searches}
        return game.guide * proposer_rewards.reward(
            cfg.proposer.reward, game.win_rate, cfg.proposer, facts
        )
    # then another target took its place (SSP)
    if game.valid or game.void_cause or cfg.game.batch == "resample":
        return None
    return cfg.proposer.invalid_reward


def _versions(cfg: Config, opponents: Sequence[Brief], given: int | None) -> dict[str, int | None]:
    """Lowest and highest version of the other role: the one that was given, in flight those of its
    episodes' tokens."""
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
