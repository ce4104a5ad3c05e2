"""Critical lines, broken one at a time: does a fast test of their room fail?

    python tests/bench/mutations.py                           60 statements, seed 1
    python tests/bench/mutations.py --count 20 --seed 7 --out survivors.json --calls calls.json

Draws statements from all that settles games, keeps the ledger, makes losses, admits work, moves weights and checks questions
(`ROOMS`), by a seed. Breaks each by a fixed rule: a comparison is turned or made strict, a sign is changed, a number is one
more, a call that stands alone is left out. Runs the room's tests on a copy of the repository, which it leaves alone, until
the first one fails, and prints what no test caught. What changes nothing that can be seen counts as not caught: a reader
judges the survivors.

All tests must pass on an unbroken copy first: then any other end is the broken line's doing. That run notes which functions
each test calls: of tests further away those that call the broken one suffice. `--calls` keeps the notes for the next run.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
ROOMS = {
    "settle": (["ssp/selfplay/settle.py"], ["tests/selfplay/test_settle.py", "tests/selfplay"]),
    "ledger": (["ssp/record/ledger"], ["tests/ledger", "tests/selfplay/test_kills.py"]),
    "losses": (
        ["ssp/learning/losses.py"],
        ["tests/algorithms", "tests/learning", "tests/docs/test_own_places.py"],
    ),
    "admission": (["ssp/selfplay/admission.py"], ["tests/selfplay/test_admission.py", "tests/selfplay"]),
    "transfer": (
        ["ssp/selfplay/transfer"],
        ["tests/transfer", "tests/config/test_refusals.py", "tests/selfplay/test_courier.py", "tests/selfplay"],
    ),
    "referee": (["ssp/game/referee"], ["tests/referee"]),
}
"""Room → its files or folder, and its tests, the nearest first."""

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
FAST = "-q -x -p no:cacheprovider --no-header --durations=0 --timeout=60 -m".split() + [
    "not ray and not nightly and not long"
]
LIBRARIES = (
    "torch",
    "transformers",
    "hypothesis",
    "pyarrow.parquet",
    "omegaconf",
    "safetensors.torch",
    "starlette",
    "httpx",
)
"""What tests import and no broken line changes: read once, before each run is forked."""
SECONDS, WHOLE = 300, 3600
"""After which a broken line that makes tests hang counts as caught; and what all tests may take on an unbroken copy."""
MOST = 100
"""Tests further away that are asked about one broken line: whole games call nearly everything."""


@dataclass(frozen=True)
class Mutant:
    """One broken line: where, what stood there and what stands there now."""

    room: str
    file: str
    line: int
    rule: str
    before: str
    after: str
    function: str = ""


def broken(node: ast.AST) -> tuple[str, ast.AST] | None:
    """The rule that breaks a node, and the broken node; None where no rule fits."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        return "comparison", ast.Compare(node.left, [TURNED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if (
        isinstance(node, ast.BinOp)
        and type(node.op) in SIGNS
        and not isinstance(node.left, ast.Constant | ast.JoinedStr)
    ):
        return "sign", ast.BinOp(node.left, SIGNS[type(node.op)](), node.right)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return "constant", ast.Constant(node.value + 1)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        return "deleted call", ast.Pass()
    return None


def sites(room: str) -> Iterator[tuple[Mutant, str]]:
    """Every mutant of a room, and the whole text of its file when it is broken."""
    for place in ROOMS[room][0]:
        path = REPO / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            text, name = file.read_text(encoding="utf-8"), str(file.relative_to(REPO))
            raw, starts = text.encode(), [0]
            for line in text.splitlines(keepends=True):
                starts.append(starts[-1] + len(line.encode()))
            for node, function in _within(ast.parse(text), ""):
                if (found := broken(node)) is None:
                    continue
                assert isinstance(node, ast.expr | ast.stmt)
                rule, changed = found
                begin = starts[node.lineno - 1] + node.col_offset
                end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
                before, new = raw[begin:end].decode(errors="replace"), ast.unparse(ast.fix_missing_locations(changed))
                if isinstance(node, ast.expr) and not _stands(before, node):
                    continue  # within an f-string, of whose parts Python 3.11 does not say where they stand
                new = f"({new})" if isinstance(changed, ast.Compare | ast.BinOp) else new
                mutant = Mutant(room, name, node.lineno, rule, before, new, function)
                yield mutant, (raw[:begin] + new.encode() + raw[end:]).decode()


def _within(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    """Every node with the name of the function whose body it is in, "" outside of all."""
    for inner in ast.iter_child_nodes(node):
        yield inner, function
        yield from _within(inner, inner.name if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) else function)


def _stands(text: str, node: ast.expr) -> bool:
    with suppress(SyntaxError):
        return ast.dump(ast.parse(f"({text})", mode="eval").body) == ast.dump(node)
    return False


class Calls:
    """A plugin of pytest: test → the functions of the rooms that it calls, as file:name."""

    def __init__(self, copy: Path, file: Path) -> None:
        self._copy, self._file = f"{copy}/", file
        self._of: dict[str, set[str]] = {}
        self._now: set[str] = set()
        self._names = {str(copy / mutant.file) for room in ROOMS for mutant, _ in sites(room)}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """What is called from now on, fixtures included, is this test's."""
        self._now = self._of.setdefault(nodeid, set())

    def pytest_sessionstart(self) -> None:
        """Begin."""
        sys.settrace(self._called)
        threading.settrace(self._called)

    def pytest_sessionfinish(self) -> None:
        """Write what was seen."""
        sys.settrace(None)
        self._file.write_text(json.dumps({test: sorted(called) for test, called in self._of.items()}))

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename in self._names:
            self._now.add(f"{code.co_filename.removeprefix(self._copy)}:{code.co_name}")


class Chosen:
    """A plugin of pytest: only these tests are run, and those that no `known` one is; `MOST`, from each file in turn."""

    def __init__(self, tests: Sequence[str], known: Container[str]) -> None:
        self._tests, self._known = set(tests), known

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the rest out."""
        chosen = [item for item in items if item.nodeid in self._tests or item.nodeid not in self._known]
        seen = Counter[Path]()
        rank = {}
        for item in chosen:
            seen[item.path] += 1
            rank[item] = seen[item.path]
        kept = set(sorted(chosen, key=rank.__getitem__)[:MOST])
        items[:] = [item for item in chosen if item in kept]


def failing(copy: Path, tests: Sequence[str], plugins: Sequence[object] = (), seconds: float = SECONDS) -> str:
    """The first of these tests that fails in this copy of the repository, or how else they ended; "" when all pass."""
    log = copy.parent / "log"
    child = os.fork()
    if not child:
        with log.open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        os.setsid()
        os.chdir(copy)
        os.environ.update(PYTHONPATH=str(copy), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        sys.dont_write_bytecode, sys.path[0] = True, str(copy)
        code = pytest.main([*FAST, *tests], plugins=list(plugins))
        sys.stdout.flush()
        os._exit(code)
    late = time.monotonic() + seconds
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < late:
        time.sleep(0.05)
    with suppress(ProcessLookupError):  # what a killed test left, too
        os.killpg(child, signal.SIGKILL)
    if not ended[0]:
        os.waitpid(child, 0)
        return "time-out"
    if ended[1] and os.waitstatus_to_exitcode(ended[1]) != pytest.ExitCode.NO_TESTS_COLLECTED:
        said = log.read_text(errors="replace")
        named = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        return named[1] if named else f"status {ended[1]}: {said[-300:]}"
    return ""


def caught(copy: Path, mutant: Mutant, text: str, calls: dict[str, list[str]]) -> str:
    """What fails on the broken file; "" when nothing does. The room's nearest tests all run, then those further away that
    call the broken function; all of them for what is in none."""
    file, (near, *far) = copy / mutant.file, ROOMS[mutant.room][1]
    whole, called = file.read_text(encoding="utf-8"), f"{mutant.file}:{mutant.function}"
    those = [test for test, names in calls.items() if called in names or not mutant.function]
    file.write_text(text, encoding="utf-8")
    try:
        further = [*far, f"--ignore={near}"]
        return failing(copy, [near]) or (failing(copy, further, [Chosen(those, calls)]) if far else "")
    finally:
        file.write_text(whole, encoding="utf-8")


def main() -> int:
    """Draw, break, test, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file for the survivors")
    parser.add_argument("--calls", type=Path, help="a file for which test calls what: read where it is, else made")
    args = parser.parse_args()
    drawn = random.Random(args.seed).sample([one for room in ROOMS for one in sites(room)], args.count)
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    for library in LIBRARIES:
        importlib.import_module(library)
    survivors: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="ssp-mutants-") as place:
        copy, notes = Path(place) / "copy", args.calls or Path(place) / "calls.json"
        ignored = shutil.ignore_patterns(".git", ".venv", ".mypy_cache", "runs", "__pycache__")
        shutil.copytree(REPO, copy, ignore=ignored)
        if notes.is_file():
            found = failing(copy, [near for _, (near, *_) in ROOMS.values()])
        else:
            every = {tests for _, places in ROOMS.values() for tests in places}
            whole = sorted(tests for tests in every if str(Path(tests).parent) not in every)
            found = failing(copy, whole, [Calls(copy, notes)], WHOLE)
            if found:
                notes.unlink(missing_ok=True)
        if found:
            print(f"the tests do not pass on an unbroken copy: {found}", file=sys.stderr)
            return 1
        calls = json.loads(notes.read_text())
        for mutant, text in drawn:
            began, found = time.monotonic(), caught(copy, mutant, text, calls)
            said = f"{mutant.file}:{mutant.line} {mutant.rule}: {mutant.before!r} -> {mutant.after!r}"
            seconds = f"{time.monotonic() - began:.0f} s"
            print(f"caught   {said}  by {found}, {seconds}" if found else f"SURVIVED {said}  {seconds}", flush=True)
            survivors += [] if found else [asdict(mutant)]
            if args.out:
                args.out.write_text(json.dumps(survivors, indent=1))
    print(f"{args.count - len(survivors)} of {args.count} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
