"""Health of a run: limits on each role's figures (`health.*`), signs of a collapse, questions that
are junk, and classes of questions that are unlearned.

An alarm is raised once for as long as its cause lasts. A figure that is not finite passes every
limit; a missing figure starts no breach and ends none. The figures that are remembered for
comparison are part of a checkpoint."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

from ssp.base.errors import SspError
from ssp.base.played import ANSWERS, ASKS, Game
from ssp.base.values import Values
from ssp.config.schema import Config, HealthConfig

REMEMBERED = 50
"""Gradient norms whose median is the normal one."""
ENOUGH = 10
"""Norms that a median needs before it is compared with."""
FEWEST_SEARCHES = 0.5
"""Mean searches an episode below which a role was never one that searches."""
REWARD = "reward/all"
SEARCHES = "searches"
DRIFT = "likelihood/drift_right"
VOIDED = "voided"
SIGNS = {"reward collapse": REWARD, "search collapse": SEARCHES}
"""Signs of a collapse and the figures that show them. A proposer's reward falls when its solver
learns, so that is no sign."""
NAMES = {REWARD: "reward", SEARCHES: "mean number of searches"}


class Collapse(SspError):
    """A role's policy collapsed, and `health.on_collapse` is not warn."""


@dataclass(frozen=True)
class Alarm:
    """A limit was passed for long enough; `collapse` when the policy itself is the cause."""

    text: str
    collapse: bool


@dataclass
class Memory:
    """What is remembered of one role. `breaches`: updates in a row, by cause. `best`: the largest
    running mean of each figure."""

    breaches: dict[str, int] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    recent: dict[str, list[float]] = field(default_factory=dict)
    best: Values = field(default_factory=dict)


Finding = tuple[str, bool, str, str]
"""A cause, whether its limit was passed, a sentence with the numbers, what to do."""


class HealthWatch:
    """Watches the figures of each role's updates, in order. `answerer`: the role whose reward says
    how good it is; the last one by default."""

    def __init__(self, cfg: HealthConfig, roles: Sequence[str], answerer: str = "") -> None:
        self._cfg = cfg
        self._answerer = answerer or roles[-1]
        self._roles = {role: Memory() for role in roles}

    def see(self, role: str, step: int, figures: Mapping[str, float]) -> list[Alarm]:
        """Take in one update of `role`; the alarms whose patience it used up."""
        memory = self._roles[role]
        alarms = []
        for cause, passed, says, next_step in self._findings(role, memory, figures):
            count = memory.breaches.get(cause, 0) + 1 if passed else 0
            memory.breaches[cause] = count
            if count != self._cfg.patience:
                continue
            limit = getattr(self._cfg, "collapse" if cause in SIGNS else cause)
            where = f"health alarm: {cause} of the {role} at step {step}"
            lasting = f"for {count} updates in a row (limit: {limit:g})"
            next_step = next_step.format(role=role)
            text = f"{where}: {says}, {lasting}. Next: {next_step}."
            alarms.append(Alarm(text, cause in SIGNS))
        return alarms

    def alarms(self, role: str) -> int:
        """How many causes have used up the patience now."""
        return len(self.lasting(role))

    def lasting(self, role: str) -> list[str]:
        """The causes that have used up the patience now."""
        breaches = self._roles[role].breaches
        return [cause for cause, count in breaches.items() if count >= self._cfg.patience]

    def suspects(self, role: str) -> bool:
        """True while a sign of collapse is there, whether its patience is used up or not."""
        return any(self._roles[role].breaches.get(cause) for cause in SIGNS)

    def state(self, role: str) -> dict[str, Any]:
        """What is remembered of a role, as plain data."""
        return asdict(self._roles[role])

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """The inverse of `state`, by role; roles that are not named start anew."""
        self._roles = {role: Memory(**state.get(role, {})) for role in self._roles}

    def _findings(
        self, role: str, memory: Memory, figures: Mapping[str, float]
    ) -> Iterator[Finding]:
        """Each watched limit whose figure is there. NaN is over and under every limit."""
        cfg = self._cfg
        fresher = "lower schedule.max_staleness.{role} or set {role}.correction.mask=token"
        if "logprob_mismatch/kl" in figures:
            kl = figures["logprob_mismatch/kl"]
            says = f"engine and trainer disagree by {kl:.3g} nats a token"
            yield "mismatch", not kl <= cfg.mismatch, says, f"compare their dtypes, {fresher}"
        if "ratio/mean" in figures:
            ratio = figures["ratio/mean"]
            says = f"the mean importance ratio is {ratio:.3g}"
            yield "ratio", not abs(ratio - 1) <= cfg.ratio, says, fresher
        if "ratio/samples" in figures:
            share = figures["ratio/samples"]
            says = f"a few tokens carry the update: {share:.3g} of them count"
            yield "samples", not share >= cfg.samples, says, fresher
        norm = figures.get("grad_norm", 0.0)
        if norm != 0:  # an update without any signal has none
            usual = median(memory.norms) if len(memory.norms) >= ENOUGH else math.inf
            says = f"the gradient's norm is {norm:.3g}, the usual one {usual:.3g}"
            step = "lower {role}.learner.lr, or go back to an earlier checkpoint"
            yield "grad_norm", not norm <= cfg.grad_norm * usual, says, step
            if math.isfinite(norm):
                memory.norms = [*memory.norms, norm][-REMEMBERED:]
        if DRIFT in figures:
            recent = [*memory.recent.get(DRIFT, []), figures[DRIFT]][-cfg.patience :]
            memory.recent[DRIFT] = list(filter(math.isfinite, recent))
            drift = fmean(recent)
            says = f"what earned more lost {-drift:.3g} nats a token since it was sampled"
            slower = "lower {role}.learner.lr, or take fewer optimizer steps a batch"
            yield "drift", not drift >= -cfg.drift, says, "set {role}.llds_coef=1, " + slower
        for cause, name in SIGNS.items():
            if name in figures and (name != REWARD or role == self._answerer):
                yield self._sign(cause, name, memory, figures[name], figures.get(VOIDED, 0.0))

    def _sign(self, cause: str, name: str, memory: Memory, value: float, voided: float) -> Finding:
        """Whether a figure fell to a share of its best running mean (over `patience` updates).

        An outage takes the episodes that searched and leaves the others. What the share `voided`
        of them would have been is not known, so they count as the best."""
        patience = self._cfg.patience
        best = memory.best.get(name, 0.0)
        if math.isfinite(value):
            recent = [*memory.recent.get(name, []), value][-patience:]
            memory.recent[name] = recent
            if len(recent) == patience:
                memory.best[name] = max(best, fmean(recent))
        at_most = (1 - voided) * value + voided * best
        least = FEWEST_SEARCHES if name == SEARCHES else 0.0
        passed = best > least and not at_most >= self._cfg.collapse * best
        says = f"its {NAMES[name]} is {value:.3g} and was {best:.3g}"
        calmer = "lower {role}.learner.lr, set {role}.kl.coef"
        step = calmer + ", or compare {role}.loss with docs/algorithms.md"
        return cause, passed, says, step


WIN_RATE = 0.1
"""The share of won attempts that is a sign of junk, or less."""
VALID_RATE = 0.6
"""The share of accepted questions, or more, that makes the few wins such a sign."""


class JunkAlarm(SspError):
    """Raised at the end of a run that the alarm stopped."""


class JunkWatch:
    """Watches every round's games; with `health.on_collapse=warn` it only says its alarm."""

    def __init__(self, cfg: Config, say: Callable[[str], None]) -> None:
        self._patience = cfg.referee.alarm_patience
        self._warns = cfg.health.on_collapse == "warn"
        self._say = say
        self._held: list[int] = []

    def restart(self, step: int) -> None:
        """Forget the rounds after `step`: they will be played again."""
        self._held = [held for held in self._held if held <= step]

    def see(self, step: int, games: Sequence[Game]) -> JunkAlarm | None:
        """Take in the round of `step`; the alarm once the sign has held for `alarm_patience`
        rounds. The newest solver's work at the newest proposer's questions counts; where it tried
        none, that of the past versions that graded them."""
        known = [(game.frozen, game.win_rate) for game in games if game.win_rate is not None]
        rates = [rate for by, rate in known if not by]
        if not rates:
            rates = [rate for by, rate in known if by == ANSWERS]
        asked = [game.valid for game in games if game.proposal is not None and game.frozen != ASKS]
        if not rates or not asked:
            return None
        win = sum(rates) / len(rates)
        valid = sum(asked) / len(asked)
        junk = win <= WIN_RATE and valid >= VALID_RATE
        self._held = [*self._held, step] if junk else []
        if len(self._held) != self._patience:
            return None
        alarm = JunkAlarm(
            f"junk alarm: for {self._patience} rounds the solver won at most {WIN_RATE:.0%} of its"
            f" games while the referee passed at least {VALID_RATE:.0%} of the questions (now"
            f" {win:.0%} and {valid:.0%}). The referee accepts questions without an answer. Next:"
            " set referee.evidence=chain, or a stronger verifier, and start again from a"
            " checkpoint before the win rate fell."
        )
        if not self._warns:
            return alarm
        self._say(str(alarm))
        return None


FALL = 0.05
"""The least loss of accuracy of a class that makes an alarm."""
ERRORS = 3.0
"""The same in standard errors of the difference."""
ACCURACY, ITEMS, ASKED = "eval/accuracy_", "eval/items_", "game/asked_"
"""How the figures of a class begin."""


@dataclass(frozen=True)
class ClassScore:
    """The accuracy of a class in the evaluation of `step`, and on how many questions."""

    step: int
    accuracy: float
    items: float

    @property
    def variance(self) -> float:
        """Of the accuracy, by one right and one wrong answer more than there were: a class of
        which nothing was right is not certain."""
        share = (self.accuracy * self.items + 1) / (self.items + 2)
        return share * (1 - share) / self.items


class ClassWatch:
    """Compares each class of questions (`1hop`, `form.backwards`) in an evaluation with the best
    one before. `earlier`: the rows of processes before this one."""

    def __init__(
        self, say: Callable[[str], None], earlier: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._say = say
        self._measured: dict[int, list[tuple[str, ClassScore]]] = {}
        self._asked: dict[int, Values] = {}
        self._lasting: set[str] = set()
        for row in earlier:
            if row["role"] == "game":
                self.asked(row["step"], row)
            elif row["role"] == "eval":
                self._measured[row["step"]] = _classes(row["step"], row)

    def restart(self, step: int) -> None:
        """Forget what comes again after `step`."""
        for known in (self._measured, self._asked):
            for later in [at for at in known if at > step]:
                known.pop(later)

    def asked(self, step: int, figures: Mapping[str, Any]) -> None:
        """Take in how often each class was asked in a round."""
        shares = {}
        for name, share in figures.items():
            if name.startswith(ASKED) and share is not None:
                shares[name.removeprefix(ASKED)] = float(share)
        if shares:
            self._asked[step] = shares

    def see(self, step: int, scores: Mapping[str, float]) -> Values:
        """Take in an evaluation: for each class 1 while it is down, else 0. An alarm that begins
        is said."""
        figures = {}
        for name, now in _classes(step, scores):
            best = self._best(name, step)
            if best is None:
                continue
            error = math.sqrt(best.variance + now.variance)
            down = best.accuracy - now.accuracy >= max(FALL, ERRORS * error)
            figures[f"eval/alarm_{name}"] = float(down)
            if down and name not in self._lasting:
                self._say(self._told(name, best, now))
            if down:
                self._lasting.add(name)
            else:
                self._lasting.discard(name)
        self._measured[step] = _classes(step, scores)
        return figures

    def _best(self, name: str, step: int) -> ClassScore | None:
        """The best evaluation of a class before `step`."""
        before = []
        for at, classes in self._measured.items():
            if at < step:
                before += [one for known, one in classes if known == name]
        return max(before, key=lambda one: one.accuracy, default=None)

    def _told(self, name: str, best: ClassScore, now: ClassScore) -> str:
        """The alarm of a class."""
        since = [shares for at, shares in self._asked.items() if best.step < at <= now.step]
        columns = {_column(other) for shares in since for other in shares}
        asked = ""
        if _column(name) in columns:
            share = fmean(shares.get(name, 0.0) for shares in since)
            asked = f" {share:.1%} of the questions that were tried since then were of this class."
        return (
            f"class alarm: {name} at step {now.step}: {now.accuracy:.1%} right, and"
            f" {best.accuracy:.1%} at step {best.step}.{asked} Next: ask it in the game as often as"
            " the evaluation does (rows, traces, given questions), or hold the policy to its start"
            " (kl.coef of its role)."
        )


def _column(name: str) -> str:
    """What the classes are of that a class is told apart from; "" for the number of hops."""
    return name.rpartition(".")[0]


def _classes(step: int, scores: Mapping[str, Any]) -> list[tuple[str, ClassScore]]:
    """The classes of an evaluation's first set."""
    classes = []
    for name, items in scores.items():
        if name.startswith(ITEMS) and items:
            label = name.removeprefix(ITEMS)
            measured = ClassScore(step, scores[ACCURACY + label], items)
            classes.append((label.removeprefix("by_"), measured))
    return classes
