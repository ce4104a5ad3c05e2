"""The alarms of a run on its axis of steps: where each lasted, what it says and what to do. They
are found in the figures, by the rules with which the run itself raises them; junk also by the
labels of an oracle."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ssp.config.schema import Config
from ssp.selfplay.health import VALID_RATE, WIN_RATE, HealthWatch
from ssp.views.board.verdict import HALF, LOST, PASSING, WON

NOT_LEARNED = "docs/symptoms.md, Nothing is learned"
STOPS = "docs/symptoms.md, It was learning, and stops"
ENDS_IT = "docs/symptoms.md, It is slow, or ends"

GAME = {
    "junk": (
        "the referee accepts questions of the {asker} that have no true answer",
        "set referee.evidence=chain, or a stronger verifier",
        NOT_LEARNED,
    ),
    "won": (
        "the {answerer} wins nearly all: there is little gradient",
        "{harder}",
        NOT_LEARNED,
    ),
    "lost": (
        "the {answerer} wins nearly nothing: there is little gradient",
        "warm the {answerer} up, or check the search with ssp ask",
        NOT_LEARNED,
    ),
    "rejected": (
        "the referee accepts hardly a question",
        "see the rule that most break below, and warm the {asker} up (docs/warmup.md)",
        NOT_LEARNED,
    ),
    "near-duplicates": (
        "questions are nearly the same as those before",
        "see docs/curriculum.md",
        NOT_LEARNED,
    ),
    "voids": (
        "faults of ours ended episodes",
        "see their causes under Machine",
        ENDS_IT,
    ),
}
"""Cause of an alarm of the game → what it says, what to do, where more stands."""

CLASS = "eval/alarm_"
LASTING = ("junk", "won", "lost", "rejected")
"""Causes that count once they have held for `referee.alarm_patience` steps."""

Alarm = tuple[str, str, str]
"""(what it says, what to do, where more stands)."""


class Alarms:
    """Takes in rows of metrics.jsonl, and shows where alarms lasted."""

    def __init__(self, cfg: Config) -> None:
        self._patience = cfg.referee.alarm_patience
        asker = cfg.spec.asker
        self._names = {"asker": asker, "answerer": cfg.spec.answerer}
        self._names["harder"] = "ask harder questions (docs/curriculum.md)"
        if asker and cfg.block(asker).policy == "frozen":
            self._names["harder"] = f"let the {asker} learn, it is frozen ({asker}.policy=own)"
        self._watch = HealthWatch(cfg.health, cfg.roles, cfg.spec.answerer)
        self._roles = cfg.roles
        self._said: dict[tuple[str, str], Alarm] = {}
        self._at: defaultdict[tuple[str, str], dict[int, bool]] = defaultdict(dict)

    def see(self, step: int, role: str, figures: Mapping[str, float | None]) -> None:
        """Take in one row; a figure that was not finite is None."""
        if role in self._roles:
            self._health(step, role, figures)
        elif role == "game":
            for cause, is_so in self._game(figures).items():
                says, then, where = GAME[cause]
                told = says.format_map(self._names), then.format_map(self._names), where
                self._note(step, role, cause, is_so, told)
        else:
            for name, lasts in figures.items():
                if name.startswith(CLASS):
                    cause = name.removeprefix(CLASS).replace(".", ": ")
                    then = "ask it in the game as often as the evaluation does"
                    told = f"{cause} is unlearned", then, NOT_LEARNED
                    self._note(step, role, cause, bool(lasts), told)

    def _health(self, step: int, role: str, figures: Mapping[str, float | None]) -> None:
        numbers = {}
        for name, value in figures.items():
            numbers[name] = math.nan if value is None else value
        for alarm in self._watch.see(role, step, numbers):
            says, _, then = alarm.text.partition(". Next: ")
            cause = says.removeprefix("health alarm: ").partition(" of the ")[0]
            self._said[role, cause] = says.partition(": ")[2], then.rstrip("."), STOPS
        lasting = self._watch.lasting(role)
        for cause in dict.fromkeys([*lasting, *(name for by, name in self._at if by == role)]):
            self._note(step, role, cause, cause in lasting, self._said[role, cause])

    def _game(self, figures: Mapping[str, float | None]) -> dict[str, bool]:
        win, valid = figures.get("game/win_rate"), figures.get("game/valid_rate")
        voids = [value for name, value in figures.items() if name.startswith("void/")]
        truth = figures.get("audit/label_truth")
        junk = False
        if win is not None and valid is not None:
            junk = win <= WIN_RATE and valid >= VALID_RATE
            junk |= truth is not None and truth < HALF and valid > PASSING
        return {
            "junk": junk,
            "won": win is not None and win >= WON,
            "lost": win is not None and win <= LOST and not junk,
            "rejected": valid is not None and valid <= PASSING,
            "near-duplicates": bool(figures.get("curriculum/alarm_near_duplicates")),
            "voids": any(voids),
        }

    def _note(self, step: int, role: str, cause: str, lasts: bool, told: Alarm) -> None:
        self._said[role, cause] = told
        self._at[role, cause][step] = lasts

    def shown(self) -> list[list[Any]]:
        """[role, cause, first step, last step, what it says, what to do, where more stands] of
        each time that an alarm lasted, by step."""
        rows = []
        for (role, cause), steps in self._at.items():
            least = self._patience if cause in LASTING else 1
            held = []
            for step, lasts in [*sorted(steps.items()), (0, False)]:
                if lasts:
                    held.append(step)
                    continue
                if len(held) >= least:
                    rows.append([role, cause, held[0], held[-1], *self._said[role, cause]])
                held = []
        return sorted(rows, key=lambda row: (row[2], row[0], row[1]))
