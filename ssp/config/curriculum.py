"""The configuration block `curriculum.*`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ssp.config.fields import number


@dataclass
class CurriculumConfig:
    """Figures of the questions (docs/curriculum.md). `window`: rounds that windows and the alarm's baseline span.
    `yardstick`: once the run has ended, the policy that the solver started from is asked `questions` accepted ones of
    every so many rounds (0 = never)."""

    window: ClassVar[int] = 8
    yardstick: int = number(0, 0)
    questions: ClassVar[int] = 8
