"""Nodes on which a run has nothing."""

from __future__ import annotations

from typing import Any

from actors.placement import unused


def node(name: str, cpus: float = 4.0, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": f"10.0.0.{name}", "Alive": alive, "Resources": {"CPU": cpus}}


def test_a_node_that_stays_idle_is_named() -> None:
    said = unused([node("1"), node("2"), node("3")], {"1", "3"})
    assert "1 of 3 nodes (10.0.0.2)" in said and "placement.solvers" in said


def test_of_others_nothing_is_said() -> None:
    """All are used; a head without CPUs; a node that has left."""
    assert unused([node("1"), node("2")], {"1", "2"}) == ""
    assert unused([node("1", cpus=0.0), node("2"), node("3", alive=False)], {"2"}) == ""
