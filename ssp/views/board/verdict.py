"""Who wins: one sentence and a few cards, made by rules from the figures of a run.

A figure of steps is compared by the means of its first and last `ENDS` steps, with Student's
interval over the steps. An accuracy is compared by its first and last evaluation, with an interval
made of Wilson's over the questions. A change counts where its 95 % interval leaves out 0."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, variance
from typing import Any, NamedTuple

from ssp.base.intervals import wilson
from ssp.config import heldout
from ssp.config.schema import Config
from ssp.selfplay.health import VALID_RATE, WIN_RATE

ENDS = 5
"""Steps whose mean stands for the start of a run, and for its end."""
STUDENT = {2: 4.303, 3: 2.776, 4: 2.447, 5: 2.306}
"""Steps at each end → standard errors on each side of a difference."""

HEALTHY = (0.1, 0.9)
"""Win rates between which a game teaches both sides."""
WON, LOST = 0.95, 0.05
"""Win rates from and to which one side has won."""
PASSING = 0.05
"""The share of valid questions to which a game stands still."""
LEFT, LITTLE = 0.2, 0.05
"""Shares of questions that tell attempts apart: enough, and hardly any."""
TRUE, HALF = 0.95, 0.5
"""Shares of accepted questions with a true label: a good referee's, and junk below that."""
FEW, MANY = 0.01, 0.1
"""Shares of void episodes: hardly any, and so many that the figures are of the rest."""
GOOD, FAIR, BAD, UNSURE = "good", "fair", "bad", "unsure"

Points = Sequence[tuple[int, float]]
Series = Callable[[str, str], Points]
"""(role, figure) → its (step, value), by step."""


class Change(NamedTuple):
    """How `name` went from `start` to `end`. `low`, `high`: the interval of the difference, None
    where nothing is known of it."""

    name: str
    start: float
    end: float
    share: bool
    low: float | None = None
    high: float | None = None

    @property
    def way(self) -> int:
        """1 for a rise, -1 for a fall, 0 where neither is certain."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    def ends(self) -> str:
        """Start and end for a person."""
        return f"{self.name} {self._form(self.start)} → {self._form(self.end)}"

    def difference(self) -> str:
        """The difference and its interval for a person."""
        by, unit = (100, " points") if self.share else (1, "")
        form = "+.1f" if self.share else "+.2f"
        told = f"{by * (self.end - self.start):{form}}{unit}"
        if self.low is None or self.high is None:
            return f"{told}, too few steps for an interval"
        return f"{told}, 95 %: {by * self.low:{form}} to {by * self.high:{form}}"

    def _form(self, value: float) -> str:
        return percent(value) if self.share else f"{value:.2f}"


def percent(value: float) -> str:
    """A share as every view writes it; the sign stays on the number's line."""
    return f"{100 * value:.1f}\u00a0%"


def end_of(points: Points) -> float | None:
    """The mean of the last `ENDS` values, None without any."""
    return fmean(value for _, value in points[-ENDS:]) if points else None


def over_steps(name: str, points: Points, share: bool = True) -> Change | None:
    """The change of a figure of steps; None where there are fewer than two."""
    values = [value for _, value in points]
    steps = min(ENDS, len(values) // 2)
    if not steps:
        return None
    first, last = values[:steps], values[-steps:]
    change = Change(name, fmean(first), fmean(last), share)
    if steps == 1:
        return change
    half = STUDENT[steps] * math.sqrt((variance(first) + variance(last)) / steps)
    difference = change.end - change.start
    return change._replace(low=difference - half, high=difference + half)


def over_evaluations(name: str, points: Points, items: Points) -> Change | None:
    """The change of an accuracy; None where it was measured less than twice. Intervals of two
    shares make that of their difference (Zou and Donner 2008)."""
    if len(points) < 2:
        return None
    asked = dict(items)
    (first, start), (last, end) = points[0], points[-1]
    change = Change(name, start, end, share=True)
    if not asked.get(first) or not asked.get(last):
        return change
    low, high = wilson(start, asked[first])
    least, most = wilson(end, asked[last])
    difference = end - start
    below = math.hypot(end - least, high - start)
    above = math.hypot(most - end, start - low)
    return change._replace(low=difference - below, high=difference + above)


class Card(NamedTuple):
    """One card: its question, the answer in a word, how good that is, and what says so."""

    title: str
    word: str
    tone: str
    facts: list[str]


class FirstScreen:
    """What the first screen of one run says. `series` reads its figures; `accounts` are those of its ledger, or empty."""

    def __init__(self, cfg: Config, series: Series, accounts: Mapping[str, Any]) -> None:
        self._cfg = cfg
        self._series = series
        self._accounts = accounts
        self.asker = cfg.spec.asker
        self.answerer = cfg.spec.answerer
        self.win = end_of(series("game", "game/win_rate"))
        self.valid = end_of(series("game", "game/valid_rate"))
        self.truth = end_of(series("game", "audit/label_truth"))

    def shown(self) -> dict[str, Any]:
        """{headline, tone, sentence, cards, healthy}: what the board's first screen shows."""
        headline, tone = self.headline()
        cards = self.learning()
        cards += [self.left(), self.trust()]
        return {
            "headline": headline,
            "tone": tone,
            "sentence": self.sentence(),
            "cards": [card._asdict() for card in cards],
            "healthy": list(HEALTHY),
        }

    @property
    def junk(self) -> bool:
        """Whether questions are accepted that have no answer, or another one."""
        if not self.asker or self.valid is None or self.valid <= PASSING:
            return False
        if self.truth is not None and self.truth < HALF:
            return True
        return self.win is not None and self.win <= WIN_RATE and self.valid >= VALID_RATE

    def headline(self) -> tuple[str, str]:
        """Who wins, in a few words, and how good that is."""
        asker, answerer = self.asker, self.answerer
        learned = self._answering()
        answers = learned.way if learned is not None else 0
        asked = self._asking()
        if self.win is None and self.valid is None:
            return "Nothing was played yet", UNSURE
        if self.junk:
            return f"Junk wins: the {asker}'s questions pass without a true answer", BAD
        if self.valid is not None and self.valid <= PASSING:
            return f"Nobody wins: hardly a question of the {asker} passes", BAD
        if self.win is not None and self.win >= WON:
            return f"The {answerer} has won: hardly anything is left to learn", FAIR
        if self.win is not None and self.win <= LOST:
            return f"The {answerer} has lost: it answers nothing right", BAD
        if answers < 0:
            return f"The {answerer} gets worse", BAD
        if answers and asked is not None and asked.way > 0:
            return "Both sides learn", GOOD
        if answers:
            return f"The {answerer} learns", GOOD
        if asked is not None and asked.way > 0:
            return f"The {asker} learns; of the {answerer} it is not certain", FAIR
        return "Unsure: no change is certain yet", UNSURE

    def sentence(self) -> str:
        """Who learned, by how much."""
        parts = []
        change = self._answering()
        if change is None:
            parts.append(f"the {self.answerer} was not measured apart from the game")
        else:
            parts.append(_clause(self.answerer, change))
        asked = self._asking()
        if self._frozen(self.asker):
            parts.append(f"the {self.asker} is frozen")
        elif self.junk and self.truth is not None:
            told = f"{percent(self.truth)} of the questions that pass are true"
            parts.append(f"the {self.asker} learned what is no question: {told}")
        elif asked is not None:
            parts.append(_clause(self.asker, asked))
        sentence = "; ".join(parts) + "."
        return sentence[0].upper() + sentence[1:]

    def _frozen(self, role: str) -> bool:
        return bool(role) and self._cfg.block(role).policy == "frozen"

    def _answering(self) -> Change | None:
        """What says whether the answering role learned: an evaluation, or its reward where the
        questions do not change with a learner."""
        accuracy = self._series("eval", "eval/accuracy")
        name = heldout.accuracy(self._cfg)
        change = over_evaluations(name, accuracy, self._series("eval", "eval/items"))
        if change is None and (not self.asker or self._frozen(self.asker)):
            return self._reward(self.answerer)
        return change

    def _asking(self) -> Change | None:
        """What says most of whether the asking role learned: of what rises the first, else what
        falls, else its reward. Its reward alone falls where the other side learns."""
        if not self.asker or self._frozen(self.asker):
            return None
        changes = [
            over_steps("hops", self._series("game", "game/hops_mean"), share=False),
            over_steps("valid questions", self._series("game", "game/valid_rate")),
            self._reward(self.asker),
        ]
        known = [change for change in changes if change is not None]
        rises = [change for change in known if change.way > 0]
        falls = [change for change in known[:-1] if change.way < 0]
        return [*rises, *falls, *reversed(known), None][0]

    def _reward(self, role: str) -> Change | None:
        points = self._series(role, "reward/all") or self._series(role, "reward/mean")
        return over_steps("reward", points, share=False)

    def learning(self) -> list[Card]:
        """A card for each role: does it learn?"""
        hint = "no evaluation twice: eval.every=10 measures it"
        cards = [_learns(self.answerer, self._answering(), hint)]
        if self._frozen(self.answerer):
            cards = [Card(f"{self.answerer} learns", "frozen", UNSURE, ["it is not trained"])]
        others = dict.fromkeys([self.asker, *self._cfg.roles])
        for role in others:
            if role in ("", self.answerer):
                continue
            if self._frozen(role):
                card = Card(f"{role} learns", "frozen", UNSURE, ["it is not trained"])
            elif role == self.asker:
                card = _learns(role, self._asking(), "too few steps")
            else:
                card = _learns(role, self._reward(role), "too few steps")
            if role == self.asker and self.junk:
                card = card._replace(word="junk", tone=BAD)
            cards.append(card)
        return cards

    def left(self) -> Card:
        """Is something left to learn?"""
        flat = end_of(self._series("game", "game/no_signal_rate"))
        facts = []
        if self.win is not None:
            low, high = (round(100 * end) for end in HEALTHY)
            facts.append(f"win rate {percent(self.win)}, healthy from {low} to {high}\u00a0%")
        if flat is not None:
            facts.append(f"{percent(1 - flat)} of the questions tell attempts apart")
        if self.valid is not None:
            facts.append(f"valid questions {percent(self.valid)}")
        word, tone = "unsure", UNSURE
        if self.junk:
            word, tone = "only junk", BAD
        elif self.valid is not None and self.valid <= PASSING:
            word, tone = "no", BAD
        elif flat is not None:
            left = 1 - flat
            word, tone = ("yes", GOOD) if left >= LEFT else ("little", FAIR)
            if left < LITTLE:
                word, tone = "no", BAD
        return Card("something left to learn", word, tone, facts or ["nothing was played yet"])

    def trust(self) -> Card:
        """Can one trust the figures?"""
        facts, tones = [], []
        issued = sum(self._accounts.get("issued", {}).values())
        if issued:
            voids = 0
            for name, number in self._accounts["outcomes"].items():
                voids += number if name.startswith("void/") else 0
            kept = sum(sum(states.values()) for states in self._accounts["states"].values())
            share = voids / issued
            tones.append(GOOD if share <= FEW else FAIR if share <= MANY else BAD)
            facts.append(f"void {voids:,} of {issued:,} episodes")
            tones.append(GOOD if kept == issued else BAD)
            lost = f"{abs(issued - kept):,} episodes lost or counted twice"
            facts.append("every episode accounted for" if kept == issued else lost)
        else:
            facts.append("no ledger yet")
            tones.append(UNSURE)
        referee, tone = self.referee()
        facts += referee
        tones.append(tone)
        worst = next(tone for tone in (BAD, FAIR, UNSURE, GOOD) if tone in tones)
        word = {BAD: "no", FAIR: "partly", UNSURE: "not checked", GOOD: "yes"}[worst]
        return Card("can I trust it", word, worst, facts)

    def referee(self) -> tuple[list[str], str]:
        """What the world's oracle says of accepted and refused questions."""
        truth = dict(self._series("game", "audit/label_truth"))
        if not self.asker:
            return [], GOOD
        if not truth:
            return ["this world has no oracle: nobody checks the referee"], UNSURE
        accepted = dict(self._series("game", "game/accepted"))
        unread = dict(self._series("game", "game/unread_rate"))
        true = read = 0
        for step, share in truth.items():
            asked = round(accepted.get(step, 0.0) * (1 - unread.get(step, 0.0)))
            read += asked
            true += round(share * asked)
        share = true / read if read else fmean(truth.values())
        facts = [f"accepted by the referee: {true:,} of {read:,} are true"]
        if self._series("game", "game/given") or not read:  # given questions are in the share too
            facts = [f"of questions that pass {percent(share)} are true"]
        refused = end_of(self._series("game", "audit/false_rejection"))
        if refused is not None:
            facts.append(f"refused though true: {percent(refused)} of those that kept the rules")
        if self.junk or share < HALF:
            return facts, BAD
        return facts, GOOD if share >= TRUE else FAIR


def _clause(role: str, change: Change) -> str:
    """Whether a role learned, by its change."""
    said = {1: f"the {role} learned", -1: f"the {role} got worse"}
    lead = said.get(change.way, f"that the {role} learned is not certain")
    return f"{lead}: {change.ends()} ({change.difference()})"


def _learns(role: str, change: Change | None, hint: str) -> Card:
    """The card of a role's change; `hint` where there is none."""
    title = f"{role} learns"
    if change is None:
        return Card(title, "not measured", UNSURE, [hint])
    word, tone = {1: ("yes", GOOD), -1: ("worse", BAD), 0: ("unsure", UNSURE)}[change.way]
    return Card(title, word, tone, [change.ends(), change.difference()])
