"""A newcomer's walk: every ```bash block of the pages, command by command, in a fresh clone with a home of its own.

    python tests/bench/walk.py [README.md docs/bank.md ...] [--venv PATH] [--keep DIR]

Owns the order (README.md, then docs/*.md by name), the shells, and the table at the end: one row a command. Promises that a
block is run as it stands: lines of one page share a shell, and nothing of this checkout or of the caller's settings is seen
but a package index. Refuses to guess: what differs from the page is written above the block, as an HTML comment, and shown.

    <!-- walk: s/steps=60/steps=2/ -->       the block with this replaced (| instead of / where the texts have slashes)
    <!-- walk: skip needs a network -->      not run, and why
    <!-- walk: skip-line ray job -- why -->  lines that begin so are not run

```sh and ```console blocks are for the reader: GPUs, several machines, other people's servers. In a walked block the words
EPISODE and OTHER behind `runs/NAME:` are episodes of that run, QUESTION a game of it. A command that serves until
Ctrl-C counts as done when it says its address; one with & behind it too. Both are ended with the page.

Without --venv the first command of README.md installs the environment, which takes minutes and gigabytes. With --venv PATH the
clone gets an environment of its own that reads the packages of PATH; its own code is the clone's all the same.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from docpages import ROOT, WALKED, Block, blocks, pages
from trainruns import MARK, end_marked

LIMIT = 900.0
"""Seconds that one command may take."""
SERVES = re.compile(r"^(ssp serve|ssp board(?!.*--save)|python -m launch\.(serve|board)|tensorboard)\b")
ADDRESS = re.compile(r"https?://\S+")
KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""What of the caller's environment is the machine's and not the caller's; PIP_* and proxies too."""
FIRST = "quickstart-001"
"""The run that the pages speak of."""
PREPARED = [
    f"ssp train --config quickstart steps=6 eval.every=0 eval.final_questions_per_hop=4 run.name={FIRST}",
    "ssp train --config quickstart steps=3 eval.every=0 eval.final_questions_per_hop=4 seed=2 run.name=quickstart-002",
]
"""What README.md's own commands make before another page is walked, in short: for pages that speak of it, walked alone."""
_WORD = r"(?<![\w.-]){}(?![\w.-])"


@dataclass
class Row:
    """One command of the table. `result`: ok, FAILED, shown, or left out and why."""

    place: str
    command: str
    result: str = ""
    seconds: float = 0.0
    tail: str = ""
    note: str = ""


@dataclass
class Shell:
    """One page's shell in the clone: a bash for each command, which begins with what the one before has left (variables and
    working folder)."""

    clone: Path
    environment: dict[str, str]
    log: Path
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, command: str, limit: float = LIMIT) -> tuple[int | None, str]:
        """Exit code (None: the limit came first) and output."""
        state, output = self.log / f"state-{id(self)}.sh", self.log / f"{uuid.uuid4().hex[:8]}.txt"
        # What bash itself sets cannot be set again, which it says.
        keeps = f"trap 'declare -p > {state}; echo cd $PWD >> {state}' EXIT"
        script = f"cd {self.clone}; source {state} 2> /dev/null\n{keeps}\n{command}\n"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-c", script], env=self.environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self.beside.append(process)
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        return code, output.read_text(errors="replace")

    def serve(self, command: str, limit: float = 120.0) -> tuple[int | None, str]:
        """Start what serves until Ctrl-C; 0 once it has said its address, its own code when it ended before."""
        output = self.log / f"{uuid.uuid4().hex[:8]}.txt"
        with output.open("wb") as file:
            state = f"cd {self.clone} && [[ -f .venv/bin/activate ]] && source .venv/bin/activate; exec {command}"
            process = subprocess.Popen(
                ["bash", "-c", state], cwd=self.clone, env=self.environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, start_new_session=True,
            )  # fmt: skip
        self.beside.append(process)
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            text = output.read_text(errors="replace")
            if ADDRESS.search(text):
                return 0, text
            if process.poll() is not None:
                return process.returncode or 1, text
            time.sleep(0.2)
        return None, output.read_text(errors="replace")

    def end(self) -> None:
        """End what still runs, with their children, by their process groups."""
        for process in [process for process in self.beside if process.poll() is None]:
            for number in (signal.SIGINT, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, number)
                    process.wait(20)
                    break


def commands(text: str) -> list[str]:
    """A block's commands as bash would read them: continued lines, here-documents and compound commands stay whole."""
    found: list[str] = []
    held = ""
    for line in text.splitlines():
        if not held and (not line.strip() or line.lstrip().startswith("#")):
            continue
        held = f"{held}\n{line}" if held else line
        if _whole(held):
            found.append(held)
            held = ""
    return [*found, held] if held else found


def _whole(text: str) -> bool:
    """Whether bash would run it now, and not wait for more."""
    here = re.findall(r"<<-?\s*['\"]?(\w+)['\"]?", text)
    lines = text.splitlines()
    if any(word not in lines[1:] for word in here) or lines[-1].endswith("\\"):
        return False
    return subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True).returncode == 0


@dataclass
class Rules:
    """What is written above a block."""

    swaps: list[tuple[str, str]] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    skip: str = ""

    @classmethod
    def above(cls, block: Block) -> Rules:
        """The comments that stand directly above its fence. ValueError for one that says nothing known."""
        rules = cls()
        for line in reversed(block.page.read_text(encoding="utf-8").splitlines()[: block.line - 2]):
            found = re.fullmatch(r"<!-- walk: (.*) -->", line.strip())
            if found is None:
                if line.strip():
                    break
                continue
            said = found[1]
            swap = re.fullmatch(r"s([/|])(.+?)\1(.*?)\1", said)
            if swap:
                rules.swaps.append((swap[2], swap[3]))
            elif said.startswith("skip-line "):
                begins, _, why = said.removeprefix("skip-line ").partition(" -- ")
                rules.lines[begins] = why
            elif said.startswith("skip "):
                rules.skip = said.removeprefix("skip ")
            else:
                raise ValueError(
                    f"{block.name}: <!-- walk: {said} --> says s/A/B/, skip WHY or skip-line BEGINNING -- WHY"
                )
        return rules

    def applied(self, text: str, place: str) -> str:
        """The block with its replacements. ValueError for one that finds nothing: it is stale."""
        for old, new in self.swaps:
            if old not in text:
                raise ValueError(f"{place}: walk: s/{old}/.../ finds nothing in the block")
            text = text.replace(old, new)
        return text


class Walk:
    """A clone, its environment, and the rows so far."""

    def __init__(self, folder: Path, venv: Path | None) -> None:
        self.clone, self.log, self.mark = folder / "clone", folder / "log", uuid.uuid4().hex
        self.rows: list[Row] = []
        for name in ("home", "log"):
            (folder / name).mkdir(parents=True)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(self.clone)], check=True)
        kept = {
            k: v for k, v in os.environ.items() if k in KEPT or k.startswith("PIP_") or k.lower().endswith("_proxy")
        }
        path = [part for part in kept["PATH"].split(":") if not part.startswith(str(ROOT))]
        config = subprocess.run([sys.executable, "-m", "pip", "config", "debug"], capture_output=True, text=True).stdout
        own = re.search(rf"({re.escape(str(Path.home()))}\S*pip\.conf), exists: True", config)
        index = {"PIP_CONFIG_FILE": own[1]} if own and "PIP_CONFIG_FILE" not in kept else {}
        self.environment = {**kept, **index, "PATH": ":".join(path), "HOME": str(folder / "home"), MARK: self.mark}
        if venv is not None:
            _borrow(self.clone, venv, self.environment)

    def page(self, page: Path) -> None:
        """Walk one page in a shell of its own; all but README.md begin with the environment of README.md."""
        shell = Shell(self.clone, self.environment, self.log)
        try:
            if page.name != "README.md":
                shell.run("source .venv/bin/activate")
                spoken = any(FIRST in block.text for block in blocks(page, WALKED))
                if spoken and not (self.clone / "runs" / FIRST).is_dir():
                    for command in PREPARED:
                        self._step(shell, Row("before", command))
            for block in blocks(page, WALKED):
                self._block(shell, block)
        finally:
            shell.end()
            end_marked(self.mark)

    def _block(self, shell: Shell, block: Block) -> None:
        rules = Rules.above(block)
        if rules.skip:
            self.rows.append(Row(block.name, f"({len(commands(block.text))} commands)", f"skipped: {rules.skip}"))
            return
        before = commands(block.text)
        after = commands(rules.applied(block.text, block.name))
        for i, command in enumerate(after):
            row = Row(block.name, command, note="" if i < len(before) and command == before[i] else "shortened")
            begun = [why for begins, why in rules.lines.items() if command.startswith(begins)]
            if begun:
                row.result = f"skipped: {begun[0]}"
                self.rows.append(row)
            else:
                self._step(shell, row)

    def _step(self, shell: Shell, row: Row) -> None:
        command, started = self._named(row.command), time.monotonic()
        plain = re.sub(r"\s+#.*$", "", command).strip()
        if SERVES.match(plain):
            code, said = shell.serve(plain.removesuffix("&").strip())
        else:
            code, said = shell.run(command)
        row.seconds, row.result = time.monotonic() - started, "ok"
        if code != 0:
            row.result = "FAILED: took too long" if code is None else f"FAILED: exit code {code}"
            row.tail = "\n".join(said.splitlines()[-15:])
        self.rows.append(row)
        print(f"{row.result:22.22} {row.seconds:6.0f} s  {row.place}  {_first(row.command)}", flush=True)
        if code is None:
            raise TimeoutError(row.command)

    def _named(self, command: str) -> str:
        """EPISODE and OTHER as episodes, QUESTION as a game, of the run that the command names."""
        run = re.search(r"(runs/[\w.-]+)", command)
        if run is None or not re.search(_WORD.format("(EPISODE|OTHER|QUESTION)"), command):
            return command
        ledger = self.clone / run[1] / "ledger.db"
        if not ledger.is_file():
            return command
        database = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
        games = [row[0] for row in database.execute("SELECT id FROM games WHERE verdict = 'valid' ORDER BY id DESC")]
        query = (
            "SELECT policy_version_min, id FROM episodes WHERE file != '' AND role = 'solver' AND state = 'trained' "
            "ORDER BY created DESC"
        )
        kept = self.clone / run[1] / "checkpoints" / "solver"  # those first that can be replayed
        episodes = [
            id for gone, id in sorted(((not (kept / f"v{v}").is_dir(), id) for v, id in database.execute(query)))
        ]
        database.close()
        command = re.sub(_WORD.format("QUESTION"), games[0], command)
        for word, name in zip(("EPISODE", "OTHER"), episodes, strict=False):
            command = re.sub(_WORD.format(word), name, command)
        return command

    def table(self) -> str:
        """Every command, its time and its result; then what the failed ones said last."""
        lines = [f"{'place':28} {'time':>7}  {'result':24} command"]
        for row in self.rows:
            note = f"  [{row.note}]" if row.note else ""
            lines.append(f"{row.place:28} {row.seconds:5.0f} s  {row.result:24} {_first(row.command)}{note}")
        for row in self.failed:
            lines += ["", f"== {row.place}: {row.command}", row.tail]
        counts = [sum(row.result.startswith(kind) for row in self.rows) for kind in ("ok", "FAILED", "skipped")]
        return "\n".join([*lines, "", "{} ran, {} failed, {} skipped".format(*counts)])

    @property
    def failed(self) -> list[Row]:
        """What did not end as it should."""
        return [row for row in self.rows if row.result.startswith("FAILED")]


def _first(command: str) -> str:
    line = re.sub(r"\s+#.*$", "", command.splitlines()[0])
    return f"{line[:90]} ..." if len(line) > 90 or "\n" in command else line


def _borrow(clone: Path, venv: Path, environment: dict[str, str]) -> None:
    """A `.venv` for the clone that reads the packages of `venv`, with the clone's own code, and the stamps of setup.sh."""
    made = clone / ".venv"
    subprocess.run([str(venv / "bin" / "python"), "-m", "venv", "--without-pip", str(made)], check=True)
    (site,) = made.glob("lib/python3*/site-packages")
    (theirs,) = venv.absolute().glob("lib/python3*/site-packages")
    # The clone first: the other environment may hold an editable install of another checkout.
    (site / "aa_clone.pth").write_text(f"{clone}\n{theirs}\n", encoding="utf-8")
    for script in (venv / "bin").iterdir():
        here = made / "bin" / script.name
        if not here.exists() and script.is_file():
            text = script.read_bytes()
            if text.startswith(b"#!") and b"python" in text.splitlines()[0]:
                body = text.split(b"\n", 1)[1]
                here.write_bytes(b"#!" + str(made / "bin" / "python").encode() + b"\n" + body)
            else:
                shutil.copy2(script, here)
            here.chmod(0o755)
    stamp = "{ pwd && cat setup.cfg pyproject.toml; } | cksum | tee .venv/.ssp-run > .venv/.ssp-test"
    subprocess.run(["bash", "-c", stamp], cwd=clone, env=environment, check=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Walk; 1 when a command failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="README.md docs/bank.md ...; default: all, in order")
    parser.add_argument("--venv", type=Path, help="an environment whose packages the clone may read")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave clone, home and logs there")
    args = parser.parse_args(argv)
    chosen = [page.resolve() for page in args.pages] or pages()
    folder = args.keep.absolute() if args.keep else Path(tempfile.mkdtemp(prefix="walk-", dir="/tmp"))
    walk = Walk(folder, args.venv)
    try:
        for page in chosen:
            try:
                walk.page(page)
            except TimeoutError:
                continue  # the page's shell is lost; the next page has its own
    finally:
        end_marked(walk.mark)
        print(walk.table(), flush=True)
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if walk.failed else 0


if __name__ == "__main__":
    sys.exit(main())
