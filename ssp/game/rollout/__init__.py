"""The rollout: tasks in, episodes out, by turns of policy and search (laws 1, 2, 8). loop.py drives the turns, table.py
knows what a turn does to an episode, passages.py what of its passages is shown.

Searching is the one tool. Another one would be added where this one is: what a policy is offered (`TOOLS` in
ssp.game.protocols.renderer), how its call is read (`Protocol.action`, whose `Action` names the queries), who answers it
(`Table.find`, one call for all seats that ask), and what is logged of the answer (`Table.show`)."""

from ssp.game.rollout.loop import Settings, rollout
from ssp.search.hits import Search

__all__ = ["Search", "Settings", "rollout"]
