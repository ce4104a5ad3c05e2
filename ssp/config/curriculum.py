"""The configuration block `curriculum.*`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CurriculumConfig:
    """Figures of the questions (docs/curriculum.md). `window`: rounds that windows and the alarms' baseline span.
    `alarm`, when diversity collapses: warn, stop (after the round, exit 1), off (figures only). `yardstick`: once the
    run has ended, the policy that the solver started from is asked `questions` accepted ones of every so many rounds (0
    = never)."""

    window: int = 8
    alarm: str = "warn"
    yardstick: int = 0
    questions: int = 8
