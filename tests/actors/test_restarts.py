"""Every kind of actor has a restart policy, every wait on Ray a deadline, and the documentation shows the same."""

from __future__ import annotations

import ast
from pathlib import Path

from actors import restarts
from actors.services import LedgerActor
from actors.workers import LearnerActor, RankActor
from ssp.selfplay.settings import load

ROOT = Path(__file__).resolve().parent.parent.parent
TREES = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "actors").rglob("*.py"))}
REMOTE = ("ray.remote", "_actor")


def _actors() -> set[str]:
    """Classes that Ray makes actors of."""
    found = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(d).startswith(REMOTE) for d in node.decorator_list):
                found.add(node.name)
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Call)
                and ast.unparse(node.func.func) == "ray.remote"
            ):
                found.add(ast.unparse(node.args[0]))
    return found


def test_every_actor_class_has_a_policy() -> None:
    assert _actors() == set(restarts.POLICIES)


def test_every_wait_on_ray_has_a_deadline() -> None:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ray.get", "ray.wait", "asyncio.wait"):
                given = {word.arg for word in node.keywords}
                assert "timeout" in given or ast.unparse(node).startswith("asyncio.wait([call])"), (
                    f"{name}: {ast.unparse(node)}"
                )


def test_options_follow_the_policy() -> None:
    cfg = load("quickstart")
    cfg.placement.restarts = 4
    assert restarts.options(cfg, LedgerActor) == {"max_restarts": 4, "max_task_retries": 0}
    assert restarts.options(cfg, LearnerActor) == {"max_restarts": 0, "max_task_retries": 0}
    assert restarts.options(cfg, RankActor) == {"max_restarts": 0, "max_task_retries": 0}
    solver, rank = restarts.POLICIES["PlayerActor"], restarts.POLICIES["RankActor"]
    assert solver.told(1, 4).startswith("Ray starts it again, 1 of 4 times; lost: the block that it plays")
    assert "4 restarts are used up" in solver.told(5, 4, alive=False)
    assert rank.told(1, 4).startswith("it is started again at its next call, at most 4 times")


def test_the_documentation_has_the_table_and_leads_to_the_causes() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = [f"|`{kind}`|{policy.by}|{policy.lost}|{policy.then}|" for kind, policy in restarts.POLICIES.items()]
    assert "\n".join(rows) in text
    assert "(../ssp/base/causes.json)" in text
