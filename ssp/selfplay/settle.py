"""From graded games to training batches: outcomes, rewards, drops (laws 2 and 3).

Owns the rule that turns a finished round into ledger rows and two batches. Promises that every episode of the round
gets exactly one row, and that a void enters no batch. Refuses to talk to workers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.base.episode import PROPOSER, SOLVER, Outcome, State
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.config import own
from ssp.config.schema import Config
from ssp.game.rewards import proposer as proposer_rewards
from ssp.game.rewards.score import penalty
from ssp.selfplay.records import Brief, Game, Played, TrainBatch, TrainItem

TOO_FEW = "too_few_attempts"
"""Void of a proposal of which fewer than half the attempts were scored."""


@dataclass
class Settled:
    """A settled round: ledger rows of episodes and games, the items each learner gets, counts by cause, bytes.

    `paid`: (group, reward, searches) of each episode with a reward, trained or not. `overlong`: what each of them lost
    because it was long, where that is set.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    games: list[dict[str, Any]] = field(default_factory=list)
    items: dict[str, list[TrainItem]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    paid: dict[str, list[tuple[int, float, int]]] = field(default_factory=lambda: defaultdict(list))
    overlong: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    nbytes: Counter[str] = field(default_factory=Counter)
    step: int = 0

    def shaped(self, cfg: Config, game: Game, brief: Brief, reward: float) -> float:
        """The reward of an episode as long as it is (DAPO); takes note of what that costs the newest weights."""
        limits = cfg.block(brief.role).limits
        if not limits.overlong:
            return reward
        loss = penalty(brief.length, limits.at(self.step).total_tokens, limits.overlong)
        if game.frozen != brief.role:
            self.overlong[brief.role].append(loss)
        return reward + loss

    def add(
        self, played: Played, state: State, outcome: Outcome, cause: str, reward: float | None, group: int, **more: Any
    ) -> None:
        """One episode's row. A dropped row's cause is the drop's; `reject` counts the outcome's own all the same."""
        self.rows.append(played.brief.entry(state, outcome, cause, reward=reward, **more))
        if reward is not None:
            self.paid[played.brief.role].append((group, reward, played.brief.searches))
        if outcome is Outcome.VOID:
            self.counts[f"void/{cause}"] += 1

    def keep(self, played: Played, outcome: Outcome, cause: str, reward: float | None, **more: Any) -> None:
        """The row of an episode from which nobody learns: no figure of its role, which has newer weights, counts it."""
        self.rows.append(played.brief.entry(State.KEPT, outcome, cause, reward=reward, **more))

    def reject(self, rule: str) -> None:
        """Count a rule that a policy broke."""
        self.counts[f"reject/{rule}"] += 1

    def train(self, played: Played, reward: float, group: int, baseline: float | None = None) -> None:
        """Send one queued episode to its learner."""
        brief = played.brief
        item = TrainItem(brief.id, played.block, played.index, reward, group, brief.version_min, baseline)
        self.items[brief.role].append(item)
        self.nbytes[brief.role] += brief.length * BYTES_A_TOKEN

    def batch(self, role: str, more: Mapping[str, float]) -> TrainBatch:
        """What the learner of `role` gets; `more`: figures of the role beside its own."""
        items = self.items[role]
        rewards = [item.reward for item in items]
        return TrainBatch(role, self.step, items, rewards, self.nbytes[role], {**self.figures(role), **more})

    def figures(self, role: str) -> dict[str, float]:
        """Mean reward and searches of the role's paid episodes, and the share of groups (of two and more) without
        spread; those that there are."""
        paid = self.paid[role]
        if not paid:
            return {}
        groups: dict[int, list[float]] = {}
        for group, reward, _ in paid:
            groups.setdefault(group, []).append(reward)
        spreads = [len(set(rewards)) > 1 for rewards in groups.values() if len(rewards) > 1]
        return {
            "reward/all": sum(reward for _, reward, _ in paid) / len(paid),
            "searches": sum(searches for _, _, searches in paid) / len(paid),
            **({"groups/flat": spreads.count(False) / len(spreads)} if spreads else {}),
            **({"reward/overlong": sum(losses) / len(losses)} if (losses := self.overlong[role]) else {}),
        }


def settle(cfg: Config, games: Sequence[Game], proposer_version: int | None, step: int = 0) -> Settled:
    """Settle one round, of update `step`, whose attempts are graded; `proposer_version` asked (None: nobody). Sets each
    win rate."""
    settled = Settled(step=step)
    for group, game in enumerate(games):
        if game.chosen:
            scores = [right(game, played) for played in game.attempts]
            game.win_rate = proposer_rewards.win_rate(scores, cfg.game.attempts)
            asked_by = _asked_by(game, proposer_version)
            _settle_attempts(cfg, game, group, asked_by, settled)
        settled.games.append(
            {
                "id": game.id,
                "question": game.question or None,
                "verdict": "void" if game.void_cause else "valid" if game.valid else "rejected",
                "rule": game.rule or game.void_cause,
                "attempts": len(game.attempts),
                "win_rate": game.win_rate,
                "proposer_version": _asked_by(game, proposer_version) if game.proposal is not None else None,
            }
        )
    _settle_proposals(cfg, games, settled)
    return settled


def _settle_attempts(cfg: Config, game: Game, group: int, asked_by: int | None, settled: Settled) -> None:
    graded = [played for played in game.attempts if right(game, played) is not None]
    rewards = {played.brief.id: _solved(cfg, game, played, settled) for played in graded}
    baseline = _settle_greedy(cfg, game, settled)
    # Equal rewards leave no advantage within a group; a baseline over the batch, or a KL term, learns from it still.
    alone = own.says(cfg.solver.algorithm, "baseline") == "group" and cfg.solver.kl.coef == 0
    signal = not alone or len(set(rewards.values())) > 1
    if cfg.solver.algorithm == "remax":  # without its baseline a question teaches nothing
        signal = baseline is not None and (cfg.solver.kl.coef > 0 or set(rewards.values()) != {baseline})
    opponent = _versions(cfg, [] if game.proposal is None else [game.proposal], asked_by)
    for played in game.attempts:
        brief = played.brief
        if right(game, played) is None:
            cause = brief.cause if brief.outcome is Outcome.VOID else game.grades[brief.id].void_cause
            settled.add(played, State.VOIDED, Outcome.VOID, cause, None, group, **opponent)
            continue
        rejected = brief.final is None
        outcome, cause = (Outcome.REJECTED, brief.stopped) if rejected else (Outcome.SCORED, "")
        reward = rewards[brief.id]
        if game.frozen == SOLVER:
            settled.keep(played, outcome, cause, reward, **opponent)
            continue
        if rejected:
            settled.reject(f"solver_{brief.stopped}")
        if signal:
            settled.add(played, State.QUEUED, outcome, cause, reward, group, **opponent)
            settled.train(played, reward, group, baseline)
        else:
            settled.add(played, State.DROPPED, outcome, "no_signal", reward, group, **opponent)


def _solved(cfg: Config, game: Game, played: Played, settled: Settled) -> float:
    """What a graded attempt earned."""
    brief = played.brief
    reward = cfg.solver.invalid_reward if brief.final is None else game.grades[brief.id].reward
    return settled.shaped(cfg, game, brief, reward)


def _settle_greedy(cfg: Config, game: Game, settled: Settled) -> float | None:
    """Keep the attempt that is only a baseline; its reward, None where there is none or a fault took it."""
    played = game.greedy
    if played is None:
        return None
    brief = played.brief
    if right(game, played) is None:
        cause = brief.cause if brief.outcome is Outcome.VOID else game.grades[brief.id].void_cause
        settled.rows.append(brief.entry(State.VOIDED, Outcome.VOID, cause))
        settled.counts[f"void/{cause}"] += 1
        return None
    reward = _solved(cfg, game, played, settled)
    outcome = Outcome.SCORED if brief.final is not None else Outcome.REJECTED
    settled.rows.append(
        brief.entry(State.KEPT, outcome, "" if brief.final is not None else brief.stopped, reward=reward)
    )
    return reward


def _asked_by(game: Game, newest: int | None) -> int | None:
    """The proposer's version that wrote the question; `newest` asked in this round."""
    return newest if game.proposal is not None and game.frozen != PROPOSER else game.asked_by


def right(game: Game, played: Played) -> bool | None:
    """Right or wrong; None for an attempt that is void, in play or at the judge."""
    grade = game.grades.get(played.brief.id)
    return None if grade is None or played.brief.outcome is Outcome.VOID else grade.right


def _settle_proposals(cfg: Config, games: Sequence[Game], settled: Settled) -> None:
    """Proposals of a round, once it is known what each earned. A game alone with its target is a group of its own (SSP);
    of several in a group none is trained that has no other one to compare with. Those of past proposers are in none."""
    earned: dict[str, float] = {}
    groups: dict[str, int] = {}
    paid: dict[int, list[float]] = {}
    numbers: dict[Hashable, int] = {}
    for game in games:
        if game.proposal is None or game.frozen == PROPOSER:
            continue
        group = groups[game.id] = numbers.setdefault(_label(cfg, game), len(numbers))
        reward = _earned(cfg, game, settled)
        if reward is not None:
            earned[game.id] = reward
            paid.setdefault(group, []).append(reward)
    block = cfg.proposer
    shared = cfg.game.proposals > 1 or block.group != "target"
    alone = shared and own.says(block.algorithm, "baseline") == "group" and block.kl.coef == 0
    for game in games:
        if game.proposal is None:
            continue
        if game.frozen == PROPOSER:
            _settle_proposal(game, -1, _earned(cfg, game, settled), True, settled, cfg)
            continue
        rewards = paid.get(groups[game.id], [])
        _settle_proposal(game, groups[game.id], earned.get(game.id), not alone or len(set(rewards)) > 1, settled, cfg)


def _label(cfg: Config, game: Game) -> Hashable:
    """What proposals that share a baseline have in common: the drawn target, the number of searches that led to the
    question, or the target's text, whichever row it is from. Of no real hops: those would need an oracle."""
    assert game.proposal is not None
    if cfg.proposer.group == "hops":
        return game.proposal.brief.searches
    return game.target if cfg.proposer.group == "seed" else game.number // cfg.game.proposals


def _earned(cfg: Config, game: Game, settled: Settled) -> float | None:
    """The reward that a proposal is trained with; None for one that is void or surplus."""
    assert game.proposal is not None
    if game.void_cause or (game.valid and (not game.chosen or game.win_rate is None)):
        return None
    if not game.valid and cfg.game.batch == "resample":  # another target took its place: the valid ones teach (SSP)
        return None
    reward = cfg.proposer.invalid_reward
    if game.valid:
        assert game.win_rate is not None
        searches = game.proposal.brief.searches
        facts = {"question": game.question, "target": game.target, "searches": searches}
        reward = proposer_rewards.reward(cfg.proposer.reward, game.win_rate, cfg.proposer, facts)
    return settled.shaped(cfg, game, game.proposal.brief, reward)


def _settle_proposal(game: Game, group: int, reward: float | None, signal: bool, settled: Settled, cfg: Config) -> None:
    played = game.proposal
    assert played is not None
    opponent = _versions(cfg, game.attempts, game.solver_version) if game.attempts else {}
    outcome, cause = (Outcome.SCORED, "") if game.valid else (Outcome.REJECTED, game.rule)
    if game.void_cause:
        settled.add(played, State.VOIDED, Outcome.VOID, game.void_cause, None, group)
        return
    if game.frozen == PROPOSER and (reward is not None or not (game.valid and game.chosen)):
        settled.keep(played, outcome, cause, reward, **opponent)
        return
    if not game.valid:
        settled.reject(game.rule)
    if reward is not None and signal:
        settled.add(played, State.QUEUED, outcome, cause, reward, group, **opponent)
        settled.train(played, reward, group)
    elif reward is not None:
        settled.add(played, State.DROPPED, outcome, "no_signal", reward, group, **opponent)
    elif game.valid and game.chosen:
        settled.add(played, State.VOIDED, Outcome.VOID, TOO_FEW, None, group, **opponent)
    else:
        settled.add(
            played, State.DROPPED, outcome, "surplus", None if game.valid else cfg.proposer.invalid_reward, group
        )


def _versions(cfg: Config, opponents: Sequence[Played], given: int | None) -> dict[str, int | None]:
    """Lowest and highest version of the other role: the one that was given, in flight those of its episodes' tokens."""
    written = [played.brief for played in opponents if cfg.schedule.in_flight and played.brief.version_min >= 0]
    return {
        "opponent_version_min": min((brief.version_min for brief in written), default=given),
        "opponent_version_max": max((brief.version_max for brief in written), default=given),
    }


def all_played(games: Sequence[Game]) -> Iterator[Played]:
    """Every episode of the round: proposals, then attempts."""
    for game in games:
        if game.proposal is not None:
            yield game.proposal
        yield from game.attempts
        if game.greedy is not None:
            yield game.greedy
