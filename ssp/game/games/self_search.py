"""Self-search (SSRL, arXiv 2508.10874): given questions, and a solver that writes the information
itself that it would search for. No request leaves the machine."""

from dataclasses import replace

from ssp.game.games import given

GAME = replace(given.GAME, settings={"solver.search.kind": "self", "protocol": "ssrl"})
