"""Critical lines, broken one at a time: does a fast test of their room fail?

    python tests/bench/mutations.py                           60 statements, seed 1
    python tests/bench/mutations.py --count 20 --seed 7 --out survivors.json

Draws statements from all that settles games, keeps the ledger, makes losses, admits work, moves weights and checks questions
(`ROOMS`), by a seed. Breaks each by a fixed rule: a comparison is turned or made strict, a sign is changed, a number is one
more, a call that stands alone is left out. Runs the room's tests on a copy of the repository, which it leaves alone, and
prints what no test caught. All tests must pass on an unbroken copy first: then any other end is the broken line's doing.
What changes nothing that can be seen counts as not caught: a reader judges the survivors.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

REPO = Path(__file__).resolve().parents[2]
ROOMS = {
    "settle": (["ssp/selfplay/settle.py"], ["tests/selfplay/test_settle.py", "tests/selfplay"]),
    "ledger": (["ssp/record/ledger"], ["tests/ledger", "tests/selfplay/test_kills.py"]),
    "losses": (
        ["ssp/learning/losses.py"],
        ["tests/algorithms", "tests/learning/test_loss_wiring.py", "tests/learning"],
    ),
    "admission": (["ssp/selfplay/admission.py"], ["tests/selfplay/test_admission.py", "tests/selfplay"]),
    "transfer": (
        ["ssp/selfplay/transfer"],
        ["tests/transfer", "tests/config/test_transfer_rules.py", "tests/selfplay/test_courier.py", "tests/selfplay"],
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
FAST = "-m pytest -q -x -p no:cacheprovider --no-header --timeout=120 -m".split() + [
    "not ray and not nightly and not long"
]
SECONDS = 900
"""After which a broken line that makes tests hang counts as caught."""


@dataclass(frozen=True)
class Mutant:
    """One broken line: where, what stood there and what stands there now."""

    room: str
    file: str
    line: int
    rule: str
    before: str
    after: str


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
            text = file.read_text(encoding="utf-8")
            lines = text.splitlines(keepends=True)
            starts = [0]
            for line in lines:
                starts.append(starts[-1] + len(line.encode()))
            for node in ast.walk(ast.parse(text)):
                if (found := broken(node)) is None:
                    continue
                assert isinstance(node, ast.expr | ast.stmt)
                rule, changed = found
                begin = starts[node.lineno - 1] + node.col_offset
                end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
                raw, new = text.encode(), ast.unparse(ast.fix_missing_locations(changed))
                before = raw[begin:end].decode(errors="replace")
                if isinstance(node, ast.expr) and not _stands(before, node):
                    continue  # within an f-string, of whose parts Python 3.11 does not say where they stand
                new = f"({new})" if isinstance(changed, ast.Compare | ast.BinOp) else new
                name = str(file.relative_to(REPO))
                mutant = Mutant(room, name, node.lineno, rule, before, new)
                yield mutant, (raw[:begin] + new.encode() + raw[end:]).decode()


def _stands(text: str, node: ast.expr) -> bool:
    with suppress(SyntaxError):
        return ast.dump(ast.parse(f"({text})", mode="eval").body) == ast.dump(node)
    return False


def failing(copy: Path, places: Sequence[str]) -> str:
    """The first of these tests that fails in this copy of the repository, or how else they ended; "" when all pass."""
    env = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for at, tests in enumerate(places):
        run = subprocess.Popen(
            [sys.executable, *FAST, tests, *(f"--ignore={earlier}" for earlier in places[:at])],
            cwd=copy,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = run.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return "time-out"
        finally:
            with suppress(ProcessLookupError):  # what a killed test left, too
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        if run.returncode:
            named = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
            return named[1] if named else f"{tests} ends with {run.returncode}: {said[-300:]}"
    return ""


def caught(copy: Path, mutant: Mutant, text: str) -> str:
    """What fails on the broken file; "" when nothing does."""
    file = copy / mutant.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    try:
        return failing(copy, ROOMS[mutant.room][1])
    finally:
        file.write_text(whole, encoding="utf-8")


def main() -> int:
    """Draw, break, test, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file for the survivors")
    args = parser.parse_args()
    drawn = random.Random(args.seed).sample([one for room in ROOMS for one in sites(room)], args.count)
    with tempfile.TemporaryDirectory(prefix="ssp-mutants-") as place:
        copies: Queue[Path] = Queue()
        for number in range(args.jobs):
            copy = Path(place) / str(number)
            shutil.copytree(
                REPO, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".mypy_cache", "runs", "__pycache__")
            )
            copies.put(copy)
        every = {tests for _, places in ROOMS.values() for tests in places}
        if already := failing(copy, sorted(tests for tests in every if str(Path(tests).parent) not in every)):
            print(f"the tests do not pass on an unbroken copy: {already}", file=sys.stderr)
            return 1

        def one(drawn: tuple[Mutant, str]) -> str:
            copy, began = copies.get(), time.monotonic()
            found = caught(copy, *drawn)
            copies.put(copy)
            mutant = drawn[0]
            said = f"{mutant.file}:{mutant.line} {mutant.rule}: {mutant.before!r} -> {mutant.after!r}"
            seconds = f"{time.monotonic() - began:.0f} s"
            print(f"caught   {said}  by {found}, {seconds}" if found else f"SURVIVED {said}  {seconds}", flush=True)
            return found

        with ThreadPoolExecutor(args.jobs) as pool:
            found = list(pool.map(one, drawn))
    survivors = [asdict(mutant) for (mutant, _), hit in zip(drawn, found, strict=True) if not hit]
    if args.out:
        args.out.write_text(json.dumps(survivors, indent=1))
    print(f"{sum(map(bool, found))} of {len(found)} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
