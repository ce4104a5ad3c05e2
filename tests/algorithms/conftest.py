"""Finished episodes, for tests of what a batch is made of."""

from __future__ import annotations

import pytest

from ssp.base.episode import Episode, Outcome
from ssp.base.tokenlog import Kind


@pytest.fixture
def make_finished():
    """make_finished(n): scored episodes of a prompt and two model tokens."""

    def build(n: int) -> list[Episode]:
        episodes = [Episode(f"e{i}", "g", "solver", i, outcome=Outcome.SCORED) for i in range(n)]
        for episode in episodes:
            episode.log.append(Kind.PROMPT, [1, 2])
            episode.log.append_model([3, 4], [-1.0, -1.0], 0)
        return episodes

    return build
