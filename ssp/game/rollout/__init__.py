"""The rollout makes episodes of tasks, by turns of policy and search (laws 1, 2, 8).

loop.py drives the turns. table.py knows what a turn does to an episode, passages.py how much of its
passages is shown. tools.py answers calls of other tools than the search, servers.py those of MCP
servers. agents.py plays episodes by a user's own code."""

from ssp.game.rollout.loop import Settings, rollout
from ssp.search.hits import Search

__all__ = ["Search", "Settings", "rollout"]
