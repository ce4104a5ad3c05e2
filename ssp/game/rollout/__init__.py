"""The rollout: tasks in, episodes out, by turns of policy and search (laws 1, 2, 8). loop.py drives
the turns, table.py knows what a turn does to an episode, passages.py what of its passages is
shown., tools.py who answers calls of other tools than the search, servers.py those of MCP servers;
agents.py plays episodes by code of a user's own."""

from ssp.game.rollout.loop import Settings, rollout
from ssp.search.hits import Search

__all__ = ["Search", "Settings", "rollout"]
