"""The configuration block `curriculum.*`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ssp.config.fields import choice, number


@dataclass
class CurriculumConfig:
    """Figures of the questions (docs/curriculum.md). `window`: rounds that windows and the alarms' baseline span.
    `alarm`, when diversity collapses: warn, stop (after the round, exit 1), off (figures only). `yardstick`: once the
    run has ended, the policy that the solver started from is asked `questions` accepted ones of every so many rounds (0
    = never)."""

    window: int = number(8, 2, 1000)
    alarm: str = choice("warn", "warn stop off")
    yardstick: int = number(0, 0)
    questions: ClassVar[int] = 8
