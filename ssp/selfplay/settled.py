"""A settled round: ledger rows, what each learner gets, and counts."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.base.episode import REPLAYED, Outcome, State
from ssp.base.gamespec import Payment
from ssp.base.played import Brief, Game, Ref
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.base.values import Values
from ssp.learning.scored import Credit, Scored
from ssp.selfplay.records import Match, Published, TrainBatch
from ssp.telemetry.clock import Clock


@dataclass
class Settled:
    """A settled round: rows, what each learner gets (`samples`, which lie in `blocks`), counts by cause,
    and bytes by role.

    `paid`: (group, reward, searches) of each episode with a reward, trained or not. `ended`: how
    many episodes, by role and by whether a fault took them. `groups`: how many groups have
    a number; no two stages share one. `peers`: how many episodes a role has, over all stages, by
    what was asked for and by grader."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    games: list[dict[str, Any]] = field(default_factory=list)
    samples: dict[str, list[Scored]] = field(default_factory=lambda: defaultdict(list))
    blocks: dict[str, dict[str, Ref]] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[str] = field(default_factory=Counter)
    paid: dict[str, list[tuple[int, float, int]]] = field(default_factory=lambda: defaultdict(list))
    nbytes: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, bool]] = field(default_factory=Counter)
    groups: int = 0
    peers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    step: int = 0

    def add(
        self,
        brief: Brief,
        state: State,
        paid: Payment,
        scored: Scored | None,
        versions: Mapping[str, int | None],
    ) -> None:
        """Add the row of one episode, and what its learner gets. An episode in no group counts in
        no figure. `versions`: of its opponents."""
        outcome = paid.outcome
        cause = paid.cause
        reward = paid.reward
        if state is State.QUEUED and brief.version_min < 0:
            # It has no model token, so it has no version and no gradient.
            state = State.DROPPED
            cause = "no_signal"
        self.ended[brief.role, outcome is Outcome.VOID] += 1
        self.rows.append(brief.entry(state, outcome, cause, reward=reward, **versions))
        if outcome is Outcome.VOID:
            self.counts[f"void/{cause}"] += 1
        if reward is None or scored is None:
            return
        self.paid[brief.role].append((scored.group, reward, brief.searches))
        if state is State.QUEUED:
            self.samples[brief.role].append(scored)
            self.blocks[brief.role][brief.block.id] = brief.block.ref
            self.nbytes[brief.role] += brief.length * BYTES_A_TOKEN

    def scored(self, role: str) -> list[Scored]:
        """A role's samples as its estimator is given them, once all stages are priced."""
        for one in self.samples[role]:
            one.peers = self.peers[role, one.asked, one.grader]
        return self.samples[role]

    def give_credit(self, role: str, credits: Sequence[Credit]) -> None:
        """Set the credits of a role's samples, in order."""
        for scored, credit in zip(self.samples[role], credits, strict=True):
            scored.credit = credit

    def batch(self, role: str, more: Mapping[str, float]) -> TrainBatch:
        """What the learner of `role` gets; `more`: figures of the role beside its own."""
        samples = self.samples[role]
        rewards = [sample.reward for sample in samples]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        figures = {"reward/mean": mean, **self.figures(role), **more}
        return TrainBatch(role, self.step, samples, self.blocks[role], self.nbytes[role], figures)

    def figures(self, role: str) -> Values:
        """Mean reward and mean searches of the role's paid episodes; the share of flat groups,
        where a group has several; the share of episodes that a fault took, where it took any."""
        paid = self.paid[role]
        if not paid:
            return {}
        groups: dict[int, list[float]] = defaultdict(list)
        for group, reward, _ in paid:
            groups[group].append(reward)
        figures = {
            "reward/all": sum(reward for _, reward, _ in paid) / len(paid),
            "searches": sum(searches for _, _, searches in paid) / len(paid),
        }
        flat = [len(set(rewards)) == 1 for rewards in groups.values() if len(rewards) > 1]
        if flat:
            figures["groups/flat"] = sum(flat) / len(flat)
        void = self.ended[role, True]
        if void:
            figures["voided"] = void / (void + self.ended[role, False])
        return figures


@dataclass
class Round:
    """One round of play.

    `games`: about rows of the data. `given`: given questions among them. `refills`: about questions
    that were asked before. `weights`:
    the newest of each role that has begun to play. `asked_by`: the version that writes the
    questions, None where they are given. `tried`: who tries which questions of the newest batch.
    `further`: batches after the first. The curriculum adds `figures` to a `settled` round."""

    number: int
    clock: Clock
    games: list[Game] = field(default_factory=list)
    given: list[Game] = field(default_factory=list)
    refills: list[Game] = field(default_factory=list)
    weights: dict[str, Published] = field(default_factory=dict)
    asked_by: int | None = None
    tried: list[Match] = field(default_factory=list)
    further: int = 0
    settled: Settled = field(default_factory=Settled)
    figures: Values = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The update that trains the round."""
        return self.number + 1

    @property
    def played(self) -> list[Game]:
        """All games of the round; given questions first, which no others crowd out of a batch."""
        return [*self.given, *self.games, *self.refills]

    @property
    def unasked(self) -> list[Game]:
        """The games about questions that nobody wrote in this round: given and replayed ones."""
        return [*self.given, *(game for game in self.refills if game.kind == REPLAYED)]
