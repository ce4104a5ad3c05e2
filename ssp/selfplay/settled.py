"""A round as it is settled: ledger rows, what each learner gets, and what is counted."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.base.episode import Outcome, State
from ssp.base.gamespec import Payment
from ssp.base.played import Brief, Game, Ref
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.game.games.pay import TOO_FEW as TOO_FEW
from ssp.learning.samples import Sample
from ssp.learning.scored import Credit, Scored
from ssp.selfplay.records import Match, Published, TrainBatch
from ssp.telemetry.clock import Clock


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

    def add(
        self,
        brief: Brief,
        state: State,
        paid: Payment,
        scored: Scored | None,
        versions: Mapping[str, int | None],
    ) -> None:
        """One episode's row, and what its learner gets of it; one that is in no group counts in no
        figure. `versions`: of whom it was played against."""
        outcome, cause, reward = paid.outcome, paid.cause, paid.reward
        if state is State.QUEUED and brief.version_min < 0:
            # it has no model token, so no version and no gradient
            state, cause = State.DROPPED, "no_signal"
        self.ended[brief.role, outcome is Outcome.VOID] += 1
        self.rows.append(brief.entry(state, outcome, cause, reward=reward, **versions))
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
    """One round. `games`: of the data; `refills`: whose question was asked before. `weights`: the
    newest of each role that has begun to play. `asked_by`: the version that writes the questions,
    None where they are given. `tried`: who tries which questions of the newest batch; `further`:
    batches after the first. Once it is `settled`, the curriculum adds `figures`."""

    number: int
    clock: Clock
    games: list[Game] = field(default_factory=list)
    refills: list[Game] = field(default_factory=list)
    weights: dict[str, Published] = field(default_factory=dict)
    asked_by: int | None = None
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
