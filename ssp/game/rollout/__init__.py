"""The rollout: tasks in, episodes out, by turns of policy and search (laws 1, 2, 8). loop.py drives the turns, table.py
knows what a turn does to an episode, passages.py what of its passages is shown."""

from ssp.game.rollout.loop import Settings, rollout
from ssp.search.hits import Search

__all__ = ["Search", "Settings", "rollout"]
