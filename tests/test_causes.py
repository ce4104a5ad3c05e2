"""Every cause of a fault has an entry."""

from __future__ import annotations

import ast
from pathlib import Path

from ssp.base import causes

ROOT = Path(__file__).resolve().parent.parent
FILES = [path for room in ("ssp", "actors", "launch") for path in sorted((ROOT / room).rglob("*.py"))]
PASSED_ON = {"ssp/base/services.py: self._down", "ssp/base/services.py: self._wrong"}
"""Where a cause comes in a variable, from a place that is looked at too."""
MAKERS = ("Fault", "Trouble", "Service")
INTERRUPTED = "interrupted"
"""What the ledger itself says of episodes that nobody plays any more."""
CREWS = {"actors/crew.py: f'{self.name}_{kind}'", "actors/learners.py: f'{self.name}_{kind}'"}
"""Where a cause is made of a crew's name: the families."""


def _constants(tree: ast.Module) -> dict[str, str]:
    """Texts that a module gives names to, several in one line too."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[name.id] = value.value
    return found


def _imported(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("ssp", "actors"):
            file = ROOT.joinpath(*node.module.split("."))
            file = file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py"
            known = _constants(ast.parse(file.read_text(encoding="utf-8")))
            found |= {alias.asname or alias.name: known[alias.name] for alias in node.names if alias.name in known}
    return found


def _raised() -> tuple[set[str], set[str]]:
    """Causes of every `Fault(...)`, and of what makes one, in the source, and those that are no plain text."""
    words, others = {INTERRUPTED}, set[str]()
    rules = ast.walk(ast.parse((ROOT / "ssp" / "game" / "voids.py").read_text(encoding="utf-8")))
    words |= {
        node.value.value for node in rules if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant)
    }
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if not any(f"{maker}(" in text for maker in MAKERS):
            continue
        tree = ast.parse(text)
        names = {**_imported(tree), **_constants(tree)}
        for node in ast.walk(tree):
            made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS
            if not made or not node.args:
                continue
            first = node.args[0]
            either = isinstance(first, ast.IfExp)
            for value in [first.body, first.orelse] if either else getattr(first, "elts", [first]):
                if isinstance(value, ast.Constant):
                    words.add(value.value)
                elif isinstance(value, ast.Name) and value.id in names:
                    words.add(names[value.id])
                else:
                    others.add(f"{path.relative_to(ROOT)}: {ast.unparse(value)}")
    return words, others


def test_every_cause_that_is_raised_has_an_entry_and_every_entry_is_raised() -> None:
    words, others = _raised()
    assert words - {""} == set(causes.CAUSES)
    assert others == CREWS | PASSED_ON


def test_faults_of_crews_are_known_by_their_ending_and_an_unknown_cause_is_a_bug() -> None:
    for cause in ("solver_died", "learner-proposer_deadline", "ledger_died"):
        assert causes.find(cause) in causes.FAMILIES.values()
    assert causes.find("no_such_word") is causes.UNKNOWN
