"""Critical lines, broken one at a time: does a fast test of their room fail?

    python tests/bench/mutations.py                           60 statements, seed 1
    python tests/bench/mutations.py --count 20 --seed 7 --out survivors.json

Draws statements from all that settles games, keeps the ledger, makes losses, admits work, moves weights and checks questions
(`ROOMS`), by a seed. Breaks each by a fixed rule: a comparison is turned or made strict, a sign is changed, a number is one
more, a call that stands alone is left out. Runs the room's tests on a copy of the repository, which it leaves alone, and
prints what no test caught.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

REPO = Path(__file__).resolve().parents[2]
ROOMS = {
    "settle": (["ssp/selfplay/settle.py"], ["tests/selfplay/test_settle.py", "tests/selfplay"]),
    "ledger": (["ssp/record/ledger"], ["tests/ledger", "tests/selfplay/test_kills.py"]),
    "losses": (["ssp/learning/losses.py"], ["tests/algorithms", "tests/learning"]),
    "admission": (["ssp/selfplay/admission.py"], ["tests/selfplay/test_admission.py", "tests/selfplay"]),
    "transfer": (["ssp/selfplay/transfer"], ["tests/transfer", "tests/selfplay"]),
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
FAST = ["-m", "not ray and not nightly and not long", "-q", "-x", "-p", "no:cacheprovider", "--no-header"]
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
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
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
                new = f"({new})" if isinstance(changed, ast.Compare | ast.BinOp) else new
                name = str(file.relative_to(REPO))
                mutant = Mutant(room, name, node.lineno, rule, raw[begin:end].decode(), new)
                yield mutant, (raw[:begin] + new.encode() + raw[end:]).decode()


def caught(copy: Path, mutant: Mutant, text: str) -> bool:
    """Whether a test of the room fails on the broken file, in this copy of the repository."""
    file = copy / mutant.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        for tests in ROOMS[mutant.room][1]:
            command = [sys.executable, "-m", "pytest", *FAST, tests]
            if subprocess.run(command, cwd=copy, env=env, capture_output=True, timeout=SECONDS).returncode == 1:
                return True
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(whole, encoding="utf-8")


def main() -> int:
    """Draw, break, test, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
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

        def one(drawn: tuple[Mutant, str]) -> bool:
            copy = copies.get()
            found = caught(copy, *drawn)
            copies.put(copy)
            mutant = drawn[0]
            said = f"{mutant.file}:{mutant.line} {mutant.rule}: {mutant.before!r} -> {mutant.after!r}"
            print("caught  " if found else "SURVIVED", said, flush=True)
            return found

        with ThreadPoolExecutor(args.jobs) as pool:
            found = list(pool.map(one, drawn))
    survivors = [asdict(mutant) for (mutant, _), hit in zip(drawn, found, strict=True) if not hit]
    if args.out:
        args.out.write_text(json.dumps(survivors, indent=1))
    print(f"{sum(found)} of {len(found)} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
