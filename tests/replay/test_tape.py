"""A record along which the rollout goes otherwise. What the tests of the rollout play comes out again (`scripts.play`)."""

from __future__ import annotations

import scripts

from ssp.base.tokenlog import Kind
from ssp.game.rollout import Settings
from ssp.views.replay.tape import along


def test_a_turn_that_goes_on_past_its_end_is_cut_and_so_found() -> None:
    (episode,) = scripts.play([[scripts.search("a"), scripts.ANSWER]], scripts.Books())
    settings = Settings(scripts.LIMITS, 0.0, 3)
    (task,) = scripts.tasks(1)
    begin = episode.log.kinds.index(Kind.OBSERVATION)
    for at in range(begin, begin + 3):  # planted: the policy is said to have written them
        episode.log.kinds[at], episode.log.versions[at] = int(Kind.MODEL), 0
    now = along(episode, task, scripts.SEARCH_R1, settings)
    assert now.log.kinds[:begin] == episode.log.kinds[:begin] and now.log.ids != episode.log.ids
