"""How many episodes an engine plays at a time, which its memory is planned for."""

from __future__ import annotations

import pytest

from ssp.capacity.memory.processes import episodes, processes
from ssp.selfplay.settings import load


def test_a_proposers_batch_counts_all_questions_of_its_targets() -> None:
    one, four = (load("quickstart", [f"game.proposals={count}"]) for count in (1, 4))
    assert episodes(one, "proposer") == episodes(four, "proposer") == 96 // one.placement.proposers


@pytest.mark.parametrize(("role", "each"), [("proposer", 32), ("solver", 96)])
def test_players_share_a_batch(role: str, each: int) -> None:
    assert episodes(load("quickstart", ["placement.proposers=3", "placement.solvers=3"]), role) == each


def test_weights_that_are_sent_are_held_by_who_receives_them() -> None:
    """Others are mapped, and counted once a node."""
    for kind, held in (("object_store", 0), ("broadcast", 4 * 134_336)):
        player = processes(load("quickstart", [f"transfer.kind={kind}"]))[0]
        assert sum(need.bytes for need in player.needs if need.what == "weights that arrive") == held
