"""Who wins: one sentence and a few cards, made by rules from the figures of a run."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ssp.config import heldout
from ssp.config.schema import Config
from ssp.selfplay.health import VALID_RATE, WIN_RATE
from ssp.views.board.changes import (
    ENDS,
    Change,
    Points,
    end_of,
    over_evaluations,
    over_steps,
    percent,
)

HEALTHY = (0.1, 0.9)
"""Win rates between which a game teaches both sides."""
WON, LOST = 0.95, 0.05
"""Win rates from and to which one side has won."""
PASSING = 0.05
"""The share of accepted questions to which a game stands still."""
LEFT, LITTLE = 0.2, 0.05
"""Shares of questions that tell attempts apart: enough, and hardly any."""
TRUE, HALF = 0.95, 0.5
"""Shares of accepted questions with a true label: a good referee's, and the least that is not
junk."""
FEW, MANY = 0.01, 0.1
"""Shares of void episodes: hardly any, and so many that the figures are of the rest."""
REFUSED = 0.1
"""The share of true questions among the refused ones that costs a game more than little."""
HOPS = range(1, 5)
"""Classes of evaluated questions that are looked at."""
GOOD, FAIR, BAD, UNSURE = "good", "fair", "bad", "unsure"
PLAIN = ""
"""The tone of a fact that decides nothing."""
ORDER = (BAD, FAIR, UNSURE, GOOD, PLAIN)
"""Tones of facts, as they stand in a card."""
DOUBT = "in a run that cannot be trusted"
GIVEN = "measured on given questions with given answers"
NOT_TRAINED = [(PLAIN, "it is not trained")]

Fact = tuple[str, str]
"""(tone, text)."""
Series = Callable[[str, str], Points]
"""(role, figure) → its (step, value), by step."""


class Card(NamedTuple):
    """One card: its question, the answer in a word, how good that is, and what says so."""

    title: str
    word: str
    tone: str
    facts: list[Fact]

    def shown(self) -> dict[str, Any]:
        """The card, with the facts that decide first."""
        facts = sorted(self.facts, key=lambda fact: ORDER.index(fact[0]))
        return {**self._asdict(), "facts": [[tone, text] for tone, text in facts]}


class FirstScreen:
    """What the first screen of one run says. `series` reads its figures; `accounts` are those of
    its ledger, or empty."""

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
        """{headline, tone, sentence, next, cards, healthy}: what the board's first screen shows."""
        headline, tone = self.headline()
        cards, trust = self.learning(), self.trust()
        if trust.tone == BAD:
            cards = [self._doubted(card) for card in cards]
            if tone != BAD:
                headline, tone = f"{headline}, {DOUBT}", UNSURE
        return {
            "headline": headline,
            "tone": tone,
            "sentence": self.sentence(),
            "next": self.next() if tone == GOOD else "",
            "cards": [card.shown() for card in (*cards, self.left(), trust)],
            "healthy": list(HEALTHY),
        }

    def next(self) -> str:
        """What to do after a run that learned: train on where a class of questions was never as
        good as at the end, least solved first; else repeat the run."""
        if self._fallen() is not None:
            return ""
        rising = []
        for hop in HOPS:
            points = self._series("eval", f"eval/accuracy_{hop}hop")
            name = "1 hop" if hop == 1 else f"{hop} hops"
            change = over_evaluations(name, points, self._series("eval", f"eval/items_{hop}hop"))
            best = max((value for _, value in points[:-1]), default=1.0)
            if change is not None and change.way > 0 and change.end > best:
                rising.append(change)
        if not rising:
            return f"repeat it with another seed (seed={self._cfg.seed + 1}): this is one run"
        least = min(rising, key=lambda change: change.end)
        return f"train on: accuracy of {least.ends()}, its best at the last evaluation"

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
            return "Junk wins: the referee accepts questions without a true answer", BAD
        if self.valid is not None and self.valid <= PASSING:
            return f"Nobody wins: the referee accepts hardly a question of the {asker}", BAD
        if self.win is not None and self.win >= WON:
            return f"The {answerer} has won: these questions teach it hardly anything more", FAIR
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
            true, read = self._labels()
            run, end = percent(1 - true / read), percent(1 - self.truth)
            told = f"{run} of all accepted questions are junk, {end} in {self._recent()}"
            parts.append(f"the {self.asker} learned what is no question: {told}")
        elif asked is not None:
            parts.append(_clause(self.asker, asked))
        sentence = "; ".join(parts) + "."
        return sentence[0].upper() + sentence[1:]

    def _recent(self) -> str:
        """The last steps with labels, for a person."""
        return _last(self._series("game", "audit/label_truth"))

    def _labels(self) -> tuple[float, float]:
        """How many of the run's accepted questions have a true label, and how many an oracle has
        read. Steps count alike where it is not on record how many each accepted."""
        accepted = dict(self._series("game", "game/accepted"))
        unread = dict(self._series("game", "game/unread_rate"))
        true = read = 0.0
        labels = self._series("game", "audit/label_truth")
        for step, share in labels:
            asked = round(accepted.get(step, 0.0) * (1 - unread.get(step, 0.0)))
            read += asked
            true += round(share * asked)
        return (true, read) if read else (sum(share for _, share in labels), len(labels))

    def _fallen(self) -> Change | None:
        """How far the last evaluation lies below the best one, None where that is not certain."""
        points = self._series("eval", "eval/accuracy")
        if not points:
            return None
        best = max(points, key=lambda point: point[1])
        name = f"fell since step {best[0]}:"
        ends = [best, points[-1]]
        change = over_evaluations(name, ends, self._series("eval", "eval/items"))
        return change if change is not None and change.way < 0 else None

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
            over_steps("accepted questions", self._series("game", "game/valid_rate")),
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
        first = _learns(self.answerer, self._answering(), hint)
        fallen = self._fallen()
        if fallen is not None and first.tone != BAD:
            first = first._replace(tone=FAIR, facts=[(FAIR, fallen.ends()), *first.facts])
        if self._frozen(self.answerer):
            first = Card(f"{self.answerer} learns", "frozen", UNSURE, NOT_TRAINED)
        cards = [first]
        others = dict.fromkeys([self.asker, *self._cfg.roles])
        for role in others:
            if role in ("", self.answerer):
                continue
            if self._frozen(role):
                card = Card(f"{role} learns", "frozen", UNSURE, NOT_TRAINED)
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
        stuck = self.valid is not None and self.valid <= PASSING
        word, tone = "unsure", UNSURE
        if self.junk:
            word, tone = "only junk", BAD
        elif stuck:
            word, tone = "no", BAD
        elif flat is not None:
            left = 1 - flat
            word, tone = ("yes", GOOD) if left >= LEFT else ("little", FAIR)
            if left < LITTLE:
                word, tone = "no", BAD

        facts = []
        labelled = self.junk and self.truth is not None
        if labelled:
            told = f"accepted questions of {self._recent()}"
            facts.append((BAD, _labelled(self.truth or 0.0, told)))
        if flat is not None:
            decides = not self.junk and not stuck
            told = f"{percent(1 - flat)} of the questions tell attempts apart"
            facts.append((tone if decides else PLAIN, told))
        if self.win is not None:
            low, high = (round(100 * end) for end in HEALTHY)
            outside = not stuck and not HEALTHY[0] <= self.win <= HEALTHY[1]
            told = f"win rate {percent(self.win)}, healthy from {low} to {high}\u00a0%"
            facts.append((tone if outside and not labelled else PLAIN, told))
        if self.valid is not None:
            told = f"the referee accepts {percent(self.valid)} of the proposals"
            facts.append((BAD if stuck else PLAIN, told))
        facts = facts or [(UNSURE, "nothing was played yet")]
        return Card("left to learn of these questions", word, tone, facts)

    def trust(self) -> Card:
        """Can one trust the figures?"""
        facts = [(UNSURE, "no ledger yet")]
        issued = sum(self._accounts.get("issued", {}).values())
        if issued:
            voids = 0
            for name, number in self._accounts["outcomes"].items():
                voids += number if name.startswith("void/") else 0
            kept = sum(sum(states.values()) for states in self._accounts["states"].values())
            share = voids / issued
            tone = GOOD if share <= FEW else FAIR if share <= MANY else BAD
            facts = [(tone, f"{percent(share)} void: {voids:,} of {issued:,} episodes")]
            lost = f"episodes lost or counted twice: {abs(issued - kept):,}"
            accounted = (GOOD, "every episode accounted for")
            facts.append(accounted if kept == issued else (BAD, lost))
        facts += self.referee()
        worst, told = min(facts, key=lambda fact: ORDER.index(fact[0]))
        word = {BAD: "no", FAIR: "yes, but ", UNSURE: "not checked", GOOD: "yes"}[worst]
        if worst == FAIR:
            short, _, rest = told.partition(": ")
            word += short
            facts[facts.index((worst, told))] = (worst, rest)
        return Card("can I trust it", word, worst, facts)

    def referee(self) -> list[Fact]:
        """What the world's oracle says of accepted and refused questions."""
        if not self.asker:
            return []
        if self.truth is None:
            return [(UNSURE, "this world has no oracle: nobody checks the referee")]
        true, read = self._labels()
        share = true / read
        told = "accepted questions in the whole run"
        # given questions are in the share too
        counted = self._series("game", "game/accepted") and not self._series("game", "game/given")
        if counted:
            number = true if share >= TRUE else read - true
            told = f"{number:,.0f} of {read:,.0f} {told}"
        tone = GOOD if share >= TRUE else FAIR
        facts = [(BAD if self.junk or share < HALF else tone, _labelled(share, told))]
        points = self._series("game", "audit/false_rejection")
        refused = end_of(points)
        if refused is not None:
            told = f"true questions, of those that kept the rules, in {_last(points)}"
            tone = FAIR if refused > REFUSED else GOOD
            facts.append((tone, f"{percent(refused)} wrongly refused: {told}"))
        return facts

    def _doubted(self, card: Card) -> Card:
        """The card of a role in a run that cannot be trusted: nothing in it is good, but what an
        evaluation measured, whose questions and labels are given."""
        if card.facts == NOT_TRAINED:
            return card
        evaluated = len(self._series("eval", "eval/accuracy")) > 1
        if evaluated and card.title == f"{self.answerer} learns":
            return card._replace(facts=[*card.facts, (PLAIN, GIVEN)])
        tone = card.tone if card.tone == BAD else UNSURE
        return card._replace(tone=tone, facts=[(BAD, DOUBT), *card.facts])


def _last(points: Points) -> str:
    """The steps that `end_of` takes, for a person."""
    steps = min(ENDS, len(points))
    return "the last step" if steps == 1 else f"the last {steps} steps"


def _labelled(share: float, told: str) -> str:
    """How many of some questions are true, or where that is too few how many are not."""
    if share >= TRUE:
        return f"{percent(share)} true: {told}"
    return f"{percent(1 - share)} junk (no true answer): {told}"


def _clause(role: str, change: Change) -> str:
    """Whether a role learned, by its change."""
    said = {1: f"the {role} learned", -1: f"the {role} got worse"}
    lead = said.get(change.way, f"that the {role} learned is not certain")
    return f"{lead}: {change.name} {change.difference()}"


def _learns(role: str, change: Change | None, hint: str) -> Card:
    """The card of a role's change; `hint` where there is none."""
    title = f"{role} learns"
    if change is None:
        return Card(title, "not measured", UNSURE, [(UNSURE, hint)])
    word, tone = {1: ("yes", GOOD), -1: ("worse", BAD), 0: ("unsure", UNSURE)}[change.way]
    return Card(title, word, tone, [(PLAIN, fact) for fact in change.facts()])
