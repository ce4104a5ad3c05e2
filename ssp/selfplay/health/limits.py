"""Health of a run: what each role's figures may not do, and the signs of a collapse.

Owns the limits (`health.*`), how long one must be passed, and what is remembered to compare with, which is part of a
checkpoint. Promises that an alarm names its cause, the numbers and a next step, and that it is raised once for as long
as its cause lasts. A figure that is not finite passes every limit; one that is not there passes none, and ends none.
Refuses to know the weights, and to decide what a collapse leads to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

from ssp.base.episode import SOLVER
from ssp.base.errors import SspError
from ssp.config.schema import HealthConfig

REMEMBERED = 50
"""Gradient norms whose median is the normal one."""
ENOUGH = 10
"""Norms that a median needs before it is compared with."""
FEWEST_SEARCHES = 0.5
"""Mean searches an episode below which a role was never one that searches."""


class Collapse(SspError):
    """A role's policy collapsed, and `health.on_collapse` is not warn."""


@dataclass(frozen=True)
class Alarm:
    """A limit passed for long enough; `collapse` when the policy itself is the cause."""

    text: str
    collapse: bool


@dataclass
class Memory:
    """What is known of one role. `breaches`: updates in a row, by cause. `best`: largest running means, by figure."""

    breaches: dict[str, int] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    recent: dict[str, list[float]] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One limit and whether it was passed: its key, the sentence with the numbers, what to do."""

    key: str
    passed: bool
    says: str
    next_step: str
    collapse: bool = False


class HealthWatch:
    """Sees the figures of each role's updates, in order."""

    def __init__(self, cfg: HealthConfig, roles: Sequence[str]) -> None:
        self._cfg = cfg
        self._roles: dict[str, Memory] = {role: Memory() for role in roles}

    def see(self, role: str, step: int, figures: Mapping[str, float]) -> list[Alarm]:
        """One update of `role`; the alarms whose patience it used up."""
        memory, alarms = self._roles[role], []
        for cause, finding in self._findings(role, memory, figures):
            count = memory.breaches.get(cause, 0) + 1 if finding.passed else 0
            memory.breaches[cause] = count
            if count == self._cfg.patience:
                text = (
                    f"health alarm: {cause} of the {role} at step {step}: {finding.says}, for {count} updates in a row "
                    f"({finding.key}={getattr(self._cfg, finding.key.removeprefix('health.')):g}). "
                    f"Next: {finding.next_step.format(role=role)}."
                )
                alarms.append(Alarm(text, finding.collapse))
        return alarms

    def alarms(self, role: str) -> int:
        """Causes whose patience is used up now."""
        return sum(count >= self._cfg.patience for count in self._roles[role].breaches.values())

    def suspects(self, role: str) -> bool:
        """True while a sign of collapse is there, whether its patience is used up or not."""
        return any(count for cause, count in self._roles[role].breaches.items() if cause in SIGNS)

    def state(self, role: str) -> dict[str, Any]:
        """What is remembered of a role, as plain data."""
        return asdict(self._roles[role])

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """The inverse of `state`, by role; roles that are not named start anew."""
        self._roles = {role: Memory(**state.get(role, {})) for role in self._roles}

    def _findings(self, role: str, memory: Memory, figures: Mapping[str, float]) -> Iterator[tuple[str, Finding]]:
        """Each watched limit that there is something to compare with, by its cause."""
        yield from self._sampler(figures)
        yield from self._policy(memory, figures)
        if self._cfg.collapse:
            for cause, name in SIGNS.items():
                if name in figures and (name != REWARD or role == SOLVER):
                    yield from self._sign(cause, name, memory, figures[name])

    def _sampler(self, figures: Mapping[str, float]) -> Iterator[tuple[str, Finding]]:
        """Whether what was sampled is what is trained."""
        cfg = self._cfg
        fresher = "lower schedule.max_staleness.{role} or set {role}.correction.mask=token"
        if cfg.mismatch and (kl := figures.get("logprob_mismatch/kl")) is not None:
            says = f"engine and trainer disagree by {kl:.3g} nats a token"
            finding = Finding("health.mismatch", _over(kl, cfg.mismatch), says, f"compare their dtypes, {fresher}")
            yield "mismatch", finding
        if cfg.ratio and (ratio := figures.get("ratio/mean")) is not None:
            says = f"the mean importance ratio is {ratio:.3g}"
            yield "ratio", Finding("health.ratio", _over(abs(ratio - 1), cfg.ratio), says, fresher)
        if cfg.samples and (share := figures.get("ratio/samples")) is not None:
            says = f"a few tokens carry the update: {share:.3g} of them count"
            yield "samples", Finding("health.samples", _under(share, cfg.samples), says, fresher)

    def _policy(self, memory: Memory, figures: Mapping[str, float]) -> Iterator[tuple[str, Finding]]:
        """Whether the update is a usual one."""
        cfg = self._cfg
        norm = figures.get("grad_norm", 0.0)
        if cfg.grad_norm and norm != 0:  # an update without any signal has none
            usual = median(memory.norms) if len(memory.norms) >= ENOUGH else math.inf
            says = f"the gradient's norm is {norm:.3g}, the usual one {usual:.3g}"
            step = "lower {role}.learner.lr, or go back to an earlier checkpoint"
            yield "grad_norm", Finding("health.grad_norm", _over(norm, cfg.grad_norm * usual), says, step)
            if math.isfinite(norm):
                memory.norms = [*memory.norms, norm][-REMEMBERED:]

    def _sign(self, cause: str, name: str, memory: Memory, value: float) -> Iterator[tuple[str, Finding]]:
        """A figure that fell to a share of its best running mean (over `patience` updates)."""
        best = memory.best.get(name, 0.0)
        floor = FEWEST_SEARCHES if name == SEARCHES else 0.0
        says = f"its {NAMES[name]} is {value:.3g} and was {best:.3g}"
        step = "lower {role}.learner.lr, set {role}.kl.coef, or compare {role}.loss with docs/algorithms.md"
        yield (
            cause,
            Finding("health.collapse", best > floor and _under(value, self._cfg.collapse * best), says, step, True),
        )
        if not math.isfinite(value):
            return
        recent = memory.recent[name] = [*memory.recent.get(name, []), value][-self._cfg.patience :]
        if len(recent) == self._cfg.patience:
            memory.best[name] = max(best, fmean(recent))


REWARD, SEARCHES = "reward/all", "searches"
SIGNS = {"reward collapse": REWARD, "search collapse": SEARCHES}
"""Signs of a collapse and the figures that show them. A proposer's reward falls when its solver learns: no sign."""
NAMES = {REWARD: "reward", SEARCHES: "mean number of searches"}


def _over(value: float, limit: float) -> bool:
    """What is no number is over and under every limit."""
    return not value <= limit


def _under(value: float, limit: float) -> bool:
    return not value >= limit
