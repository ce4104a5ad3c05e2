"""The house: imports go one way, whether they stand at the top of a file, in a function or under TYPE_CHECKING."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ORDER = [
    *(
        "ssp/extras",
        "launch",
        "actors",
        "ssp/views",
        "ssp/capacity",
        "ssp/selfplay",
        "ssp/learning",
        "ssp/game",
        "ssp/search",
    ),
    *("ssp/engines", "ssp/telemetry", "ssp/record", "ssp/data", "ssp/config", "ssp/base"),
]
"""Wings; one may import those after it."""


def name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(path): path for top in ("ssp", "actors", "launch") for path in (ROOT / top).rglob("*.py")}


def known(dotted: str) -> str:
    """The module that a dotted name lies in, "" when it is none of ours."""
    while dotted and dotted not in MODULES:
        dotted = dotted.rpartition(".")[0]
    return dotted


def imported(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (known(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            yield from (known(f"{node.module}.{alias.name}") for alias in node.names)


GRAPH = {module: {other for other in imported(module) if other not in ("", "ssp", module)} for module in MODULES}


def wing(module: str) -> str:
    if module == "ssp.__main__":  # `python -m ssp` looks for the command line there
        return "launch"
    parts = module.split(".")
    return "/".join(parts[:2]) if parts[0] == "ssp" else parts[0]


def room(module: str) -> str:
    """A folder in a wing, or a file that lies in the wing itself."""
    parts = module.split(".")
    return "/".join(parts[: 3 if parts[0] == "ssp" else 2])


def knots(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return [knot for knot in found if len(knot) > 1]


def test_a_knot_is_found() -> None:
    assert knots({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_wing_imports_one_above_it() -> None:
    assert {wing(module) for module in MODULES} - {"ssp"} == set(ORDER)
    upward = [
        f"{module} imports {other}"
        for module, others in GRAPH.items()
        for other in sorted(others)
        if module != "ssp" and ORDER.index(wing(module)) > ORDER.index(wing(other))
    ]
    assert upward == []


def test_no_rooms_of_a_wing_import_each_other() -> None:
    rooms: dict[str, set[str]] = {}
    for module, others in GRAPH.items():
        rooms.setdefault(room(module), set()).update({room(other) for other in others} - {room(module)})
    assert knots(rooms) == []


def test_no_files_import_each_other() -> None:
    assert knots(GRAPH) == []
