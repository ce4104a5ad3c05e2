"""What a run reports while it plays: live lines, spans, and a row a step and role once every
learner has finished the step. Figures from the world's oracle go to metrics only."""

import time
from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any, Protocol

from ssp.base.episode import Outcome
from ssp.base.gamespec import GameSpec
from ssp.base.played import ANSWERS, ASKS, Brief, Game
from ssp.base.values import Values
from ssp.game.world.files import Oracle
from ssp.selfplay.audit import Audit
from ssp.selfplay.health import ClassWatch
from ssp.selfplay.settled import Round
from ssp.telemetry.clock import Clock

WAIT = 0.001
"""Seconds from which a wait is shown."""

PATIENCE = 3
"""Steps in a row without learning after which a role is reported."""


SAMPLES = 8
"""Questions of a round that are shown with their answers."""

Sample = Mapping[str, str | float | None]
"""One of them: what → text or number."""


class Sink(Protocol):
    """Where figures go (files, console, the cluster's metrics): rows, lines for the user, some of
    the questions, and bars of the timeline in perf_counter seconds. After `restart`, the rows after `step` come again."""

    def restart(self, step: int) -> None: ...
    def write(self, step: int, role: str, values: Values) -> None: ...
    def event(self, text: str) -> None: ...
    def span(self, track: str, name: str, start: float, end: float) -> None: ...
    def samples(self, step: int, rows: Sequence[Sample]) -> None: ...


class Report:
    """Collects the figures of a step from its round and the learners. `oracle`: the world, which
    knows the truth. `earlier`: the rows of processes before this one."""

    def __init__(
        self,
        sink: Sink,
        oracle: Oracle | None,
        workers: int,
        spec: GameSpec,
        earlier: Sequence[Mapping[str, Any]] = (),
    ):
        self._sink = sink
        self._classes = ClassWatch(sink.event, earlier)
        self._oracle = oracle
        self._workers = workers
        self._spec = spec
        self._roles = spec.roles
        self._sides = {ASKS: spec.asker, ANSWERS: spec.answerer}
        self.say = sink.event
        self.span = sink.span
        self._rounds: dict[int, tuple[Values, dict[str, Values], Clock]] = {}
        self._learned = defaultdict[int, list[Mapping[str, Values]]](list)
        self._cold: Counter[tuple[str, str]] = Counter()
        self._heard: set[str] = set()
        self._last = time.perf_counter()
        self.step = 0  # the last one that every learner has finished

    def restart(self, step: int) -> None:
        """Forget half-collected steps: the run (re)starts from the checkpoint of `step`."""
        self._rounds.clear()
        self._learned.clear()
        self._classes.restart(step)
        self._sink.restart(step)
        self._last = time.perf_counter()

    @contextmanager
    def waiting(self, track: str, why: str) -> Iterator[None]:
        """Show a wait in the timeline, unless it is over at once."""
        began = time.perf_counter()
        yield
        if time.perf_counter() - began > WAIT:
            self._sink.span(track, f"wait: {why}", began, time.perf_counter())

    def round(self, this: Round, voids: Mapping[str, int]) -> None:
        """Collect the figures of a settled round. `voids`: by cause, since the last round's
        report."""
        counts = this.settled.counts
        played = [episode for game in this.played for episode in game.episodes]
        values = {**game_figures(this.games, this.refills), **this.figures, **self._audit(this)}
        values |= given_figures(this.given)
        self._classes.asked(this.step, values)
        values["game/groups"] = float(counts["groups"])
        values["game/refills"] = float(this.further)
        values["game/tokens"] = float(sum(p.tokens for p in played))
        lookups = sum(p.lookups for p in played)
        if lookups:
            values["search/cut"] = sum(p.cuts for p in played) / lookups
        for cause, count in sorted(voids.items()):
            values[f"void/{cause}"] = float(count)
        for brief in played:  # the first void of a cause is told at once, with what it said
            if brief.cause and brief.detail and brief.cause not in self._heard:
                self._heard.add(brief.cause)
                self.say(f"void by {brief.cause}: {brief.detail} (episode {brief.id})")
        for name, count in sorted(counts.items()):
            if name.startswith(("reject/", "left/")):
                values[name] = float(count)
        rows = {}
        for role in self._roles:
            mine = []
            for game in this.played:
                if self._sides.get(game.frozen) != role:  # else a past version played the role
                    mine += [one for one in game.episodes if one.role == role]
            if mine:
                values[f"game/{role}_searches"] = fmean(brief.searches for brief in mine)
            tokens = sum(p.tokens for p in played if p.role == role)
            seconds = max(this.clock.generated.get(role, 0.0), 1e-9)
            rows[role] = role_figures(mine) | {"generate/tokens_per_second": tokens / seconds}
        self._rounds[this.step] = values, rows, this.clock
        self._sink.samples(this.step, samples(self._spec, this.games))

    def _audit(self, this: Round) -> Values:
        """What the oracle says of a round; nothing where it fails, which is said once."""
        if self._oracle is None:
            return {}
        try:
            return Audit(self._spec, this.played, self._oracle).figures()
        except Exception as error:
            # figures are no reason for a run not to go on, whatever a policy wrote
            if "oracle" not in self._heard:
                self._heard.add("oracle")
                why = str(error) or type(error).__name__
                self.say(f"step {this.step} has no figures of the world's oracle: {why}")
            return {}

    def learned(self, step: int, stats: Mapping[str, Values]) -> bool:
        """Collect the figures of one learner's roles after `step`. The last learner writes the
        rows, and gets True."""
        self._learned[step].append(stats)
        if sum(map(len, self._learned[step])) < len(self._roles):
            return False
        learned = self._learned.pop(step)
        # Roles that share a learner are busy together.
        spent = []
        for by_role in learned:
            spent.append(max(figures.get("busy", 0.0) for figures in by_role.values()))
        now = time.perf_counter()
        wall = now - self._last
        self._last = now
        values, rows, clock = self._rounds.pop(step)
        clock.busy += sum(spent)
        values |= clock.shares(wall, self._workers, max(spent))
        values["tokens_per_second"] = values["game/tokens"] / max(wall, 1e-9)
        self._sink.write(step, "game", values)
        done = ChainMap(*map(dict, learned))
        for name in self._roles:
            busy = done[name].pop("busy", 0.0)
            row = rows[name] | done[name]
            row["tokens_per_second"] = row.get("tokens", 0.0) / max(busy, 1e-9)
            self._sink.write(step, name, row)
            self._watch(name, row)
        self.step = step
        return True

    def _watch(self, role: str, row: Mapping[str, float]) -> None:
        """Say it when a role's episodes have taught nothing for `PATIENCE` steps in a row."""
        # An outage teaches nothing either, but its causes and next steps are said elsewhere.
        if row.get("voided", 0.0) > 0.5:
            return
        unanswered = "no episode handed in an answer: see docs/warmup.md"
        flat = "no group had two different rewards: see docs/warmup.md, docs/curriculum.md"
        signs = {
            unanswered: row.get("ended/final") == 0.0,
            flat: row.get("groups/flat") == 1.0,
        }
        for sign, there in signs.items():
            steps = self._cold[role, sign] + 1 if there else 0
            self._cold[role, sign] = steps
            if steps == PATIENCE:
                self.say(f"{role} learns next to nothing: for {PATIENCE} steps {sign}")

    def evaluated(self, step: int, scores: Values, seconds: float) -> None:
        """Write the scores of an evaluation; its seconds are not the step's."""
        alarms = self._classes.see(step, scores)
        self._sink.write(step, "eval", {**scores, **alarms, "time/eval": seconds})
        self._last += seconds


def game_figures(games: Sequence[Game], refills: Sequence[Game]) -> Values:
    """Figures of one round; those of proposals only where somebody proposed.

    Rates over proposals leave voids out; hops are over accepted questions, and are the proposer's
    searches until an oracle counts them. The work of past versions counts in `game/played` only."""
    chosen = [game for game in games if game.chosen and game.frozen != ANSWERS]
    chosen += refills
    newest = [game for game in chosen if game.frozen != ASKS]
    rates = [game.win_rate for game in newest if game.win_rate is not None]
    values = {"game/played": float(len(chosen))}
    if rates:
        values["game/win_rate"] = sum(rates) / len(rates)
        values["game/no_signal_rate"] = sum(rate in (0.0, 1.0) for rate in rates) / len(rates)
    if not any(game.proposal for game in games):
        return values
    games = [game for game in games if game.frozen != ASKS]
    judged = [game for game in games if not game.void_cause]
    valid = [game for game in judged if game.valid]
    values |= {
        "game/proposed": float(len(games)),
        "game/accepted": float(len(valid)),
        "game/refilled": float(sum(game.number < 0 for game in refills)),
        "game/valid_rate": len(valid) / len(judged) if judged else 0.0,
    }
    if valid:
        searches = sum(game.proposal.searches for game in valid if game.proposal)
        values["game/hops_mean"] = searches / len(valid)
    return values


def samples(spec: GameSpec, games: Sequence[Game]) -> list[Sample]:
    """Some questions of a round with what was answered: first those whose attempts differ most."""

    def order(game: Game) -> float:
        return 1.0 if game.win_rate is None else abs(game.win_rate - 0.5)

    asked = sorted((game for game in games if game.question), key=order)
    rows: list[Sample] = []
    for game in asked[:SAMPLES]:
        answers = [attempt.final or "-" for attempt in spec.episodes(game, spec.answers)]
        row = {"question": game.question, "label": game.target, "rule": game.rule}
        rows.append({**row, "win rate": game.win_rate, "answers": " | ".join(answers)})
    return rows


def given_figures(given: Sequence[Game]) -> Values:
    """Figures of the given questions among proposed ones; none without them."""
    if not given:
        return {}
    values = {"game/given": float(len(given))}
    rates = [game.win_rate for game in given if game.win_rate is not None]
    if rates:
        values["game/given_win_rate"] = fmean(rates)
    return values


def role_figures(briefs: Sequence[Brief]) -> Values:
    """Figures of one role's episodes in a step, voids left out; lengths in tokens. Empty where
    nothing else is left."""
    whole = [brief for brief in briefs if brief.outcome is not Outcome.VOID]
    if not whole:
        return {}
    responses = [brief.length - brief.prompt for brief in whole]
    figures = {
        "response_length/mean": fmean(responses),
        "response_length/max": float(max(responses)),
        "response_length/cut": fmean(brief.cut for brief in whole),
        "prompt_length/mean": fmean(brief.prompt for brief in whole),
        "observation_length/mean": fmean(brief.observed for brief in whole),
        "ended/final": 0.0,
    }
    ended = Counter(brief.stopped for brief in whole)
    for how, count in sorted(ended.items()):
        figures[f"ended/{how}"] = count / len(whole)
    return figures
