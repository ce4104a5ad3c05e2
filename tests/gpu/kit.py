"""What only a GPU can show, in an hour on a bare machine: no network, no Ray, a repository and the parts of pack.py.

python tests/gpu/kit.py --parts PARTS --out OUT     # again and again, until it says that nothing is left
python tests/gpu/kit.py --cpu                       # the same in small on a CPU, with what is installed: tests this script

Run on one H200 (docs/gpu.md). Needs one CUDA GPU of 80 GB, Python 3.12, torch 2.11, transformers 5.17, peft, pyarrow; 64 GB of host
memory, 30 GB of disk, 16 GB of /dev/shm. A call does what fits into --minutes and leaves everything in --folder, where
the next one goes on; it may be killed at any moment. Each step is a process of its own: one that fails, or was killed
four times, is a row that says so, and the next one runs. The table, its rows, the run's figures and the ends of the logs are in
--out after every step. Exits 0 when all is done, 3 when something is left, 1 when all is done and a step failed or missed a
target.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib.util
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MARK, TRIES, SPARE, MOST, SLOWER = "ROW ", 4, 20.0, 200_000, 10
"""Before a row; how often a step is tried; seconds of a call for its end; bytes of a log that are kept; times that a CPU,
which others use too, may take longer."""


class Step(NamedTuple):
    """`seconds`: at most, in all calls together where it `goes_on`."""

    name: str
    seconds: float
    goes_on: bool = False


STEPS = (
    Step("unpack", 120),
    Step("machine", 60),
    Step("greedy", 90),
    Step("engine", 90),
    Step("learner-smollm2", 60),
    Step("english", 660, goes_on=True),
    Step("english-after", 120),
    Step("learner-0.5B", 60),
    Step("learner-3B", 150),
    Step("object_store", 90),
    Step("zero-1", 90),
    Step("zero-3", 90),
    Step("vllm", 300),
)


def main() -> int:
    """Take the parts, run the steps that fit, print the table."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("~/ssp-gpu").expanduser(), help="kept from call to call")
    parser.add_argument("--parts", type=Path, help="a folder with parts of pack.py, some or all")
    parser.add_argument("--out", type=Path, help="where results go (default: out in --folder)")
    parser.add_argument("--minutes", type=float, default=8.5, help="of this call")
    parser.add_argument("--cpu", action="store_true", help="tiny models on a CPU, without targets")
    parser.add_argument("--steps", nargs="+", choices=[step.name for step in STEPS], help="only these")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
        import gpuparts

        found = gpuparts.run(options.part, options.folder, options.cpu, options.seconds)
        print(MARK + json.dumps(found), flush=True)
        return 0
    steps = [step._replace(seconds=SLOWER * step.seconds) for step in STEPS] if options.cpu else STEPS
    kit = Kit(options.folder.absolute(), options.cpu, began + 60 * options.minutes - SPARE)
    if options.parts:
        kit.take(options.parts)
    wanted = [step for step in steps if not options.steps or step.name in options.steps]
    left = [step.name for step in wanted if not kit.do(step, options.out or kit.folder / "out")]
    if left:
        print(f"\nleft: {', '.join(left)}. Type the same command again.")
        return 3
    return int(any(row.get("failed") or row.get("missed") for row in kit.rows()))


class Kit:
    """The folder of a kit: `rows/`, a file a step; `tries/`; `parts/`, `unpacked/` and what the steps make. `deadline`: of this
    call."""

    def __init__(self, folder: Path, cpu: bool, deadline: float) -> None:
        self.folder, self.cpu, self._deadline = folder, cpu, deadline
        for name in ("rows", "tries", "parts", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def take(self, given: Path) -> None:
        """Copy the parts that are not here yet."""
        for part in given.glob("part-*-of-*"):
            if not (self.folder / "parts" / part.name).is_file():
                shutil.copyfile(part, self.folder / "parts" / "coming")
                os.replace(self.folder / "parts" / "coming", self.folder / "parts" / part.name)

    def rows(self) -> list[dict[str, Any]]:
        """In the order of the steps."""
        found = {path.stem: json.loads(path.read_text()) for path in (self.folder / "rows").glob("*.json")}
        return [{"step": step.name, **found[step.name]} for step in STEPS if step.name in found]

    def do(self, step: Step, out: Path) -> bool:
        """Whether it is done, now or before; its row, and the results, are written."""
        row, tries = self.folder / "rows" / f"{step.name}.json", self.folder / "tries" / step.name
        before = json.loads(row.read_text()) if row.is_file() else {}
        if before and not before.get("unfinished"):
            return True
        tried, left = int(tries.read_text()) if tries.is_file() else 0, self._deadline - time.monotonic()
        lacks = self._lacks(step)
        if lacks or (self.cpu and step.name == "unpack" and not list((self.folder / "parts").iterdir())):
            found = {"not_run": lacks or "no parts are here: what is installed does"}
        elif tried >= TRIES and not before:
            found = {"failed": f"was killed {tried} times; without tries/{step.name} and its row it is tried again"}
        elif left < (60 if step.goes_on else step.seconds):
            return False
        else:
            write(tries, str(tried + 1))
            limit = min(left, step.seconds - before.get("seconds_so_far", 0.0)) if step.goes_on else step.seconds
            found = self._run(step, limit)
        if lacks and (self._waits() or self._packed()):
            return False
        write(row, json.dumps(found))
        self.report(out)
        return not found.get("unfinished")

    def _waits(self) -> bool:
        """Whether some parts are here, and not all."""
        names = [part.name for part in (self.folder / "parts").glob("part-*")]
        return bool(names) and len(names) < int(names[0].split("-")[3])

    def _packed(self) -> bool:
        """Whether parts are here that nobody tried to unpack."""
        return any((self.folder / "parts").iterdir()) and not (self.folder / "rows" / "unpack.json").is_file()

    def _lacks(self, step: Step) -> str:
        """Why a step cannot run."""
        if step.name == "unpack" and self._waits():
            return "some parts are not here yet"
        library = {"zero": "deepspeed", "vllm": "vllm"}.get(step.name.split("-")[0], "")
        packed = self.folder / "unpacked" / "site" / library
        if library and not packed.is_dir() and importlib.util.find_spec(library) is None:
            return f"{library} is not installed"
        if self.cpu or step.name == "unpack" or (self.folder / "unpacked").is_dir():
            return ""
        return "the parts are not unpacked"

    def _run(self, step: Step, limit: float) -> dict[str, Any]:
        """Its row, from a process group of its own, which is gone afterwards."""
        if step.name == "unpack":
            try:
                return unpack(self.folder)
            except (OSError, ValueError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile) as error:
                return {"failed": f"{type(error).__name__}: {error}"[:300]}
        log = self.folder / "logs" / f"{step.name}.log"
        command = [sys.executable, __file__, "--part", step.name, "--folder", str(self.folder)]
        command += ["--seconds", f"{limit - SPARE:.0f}", *(["--cpu"] if self.cpu else [])]
        with log.open("ab") as told:
            start = told.tell()
            child = subprocess.Popen(
                command,
                env=self._environment(),
                stdout=told,
                stderr=told,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                child.wait(limit + SPARE / 2)
                ended = f"exit code {child.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"not done within {limit:.0f} s"
            finally:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
        said = log.read_bytes()[start:].decode(errors="replace").splitlines()
        for line in reversed(said):
            if line.startswith(MARK):
                row: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return row
        last = [line.strip() for line in said if line.strip()][-3:]
        return {"failed": f"{ended}: {' / '.join(last)}"[:500]}

    def _environment(self) -> dict[str, str]:
        site, cache = self.folder / "unpacked" / "site", self.folder / "unpacked" / "cache"
        found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)]), "SSP_HOME": str(self.folder)}
        found |= {"HF_HUB_OFFLINE": "1"}
        if cache.is_dir():
            found["SSP_CACHE"] = str(cache)
        return found | ({"CUDA_VISIBLE_DEVICES": ""} if self.cpu else {})

    def report(self, out: Path) -> None:
        """Results so far into `out`: small, and whole at any moment."""
        out.mkdir(parents=True, exist_ok=True)
        text = table(self.rows())
        write(out / "rows.json", json.dumps(self.rows(), indent=1))
        write(out / "table.txt", text)
        for log in (self.folder / "logs").glob("*.log"):
            write(out / log.name, log.read_bytes()[-MOST:].decode(errors="replace"))
        for name in ("metrics.jsonl", "config.yaml"):
            figures = self.folder / "runs" / "english" / name
            if figures.is_file():
                write(out / name, figures.read_bytes()[-20 * MOST :].decode(errors="replace"))
        print(text.splitlines()[-1], flush=True)


def unpack(folder: Path) -> dict[str, Any]:
    """Join the parts, check them, and lay wheels and model out, aside and then renamed."""
    made = folder / "unpacked"
    if made.is_dir():
        return {"parts": 0, "missed": []}
    parts = sorted((folder / "parts").glob("part-*"), key=lambda part: int(part.name.split("-")[1]))
    aside, whole = folder / "unpacking", folder / "whole.tar.xz"
    shutil.rmtree(aside, ignore_errors=True)
    with whole.open("wb") as joined:
        for part in parts:
            block = part.read_bytes()
            if hashlib.sha256(block).hexdigest() != part.name.rpartition("-")[2]:
                part.unlink()  # so that it is waited for
                return {"unfinished": True, "damaged": part.name[:12]}
            joined.write(block)
    if not parts:
        raise ValueError("no parts are here: --parts FOLDER, see pack.py")
    with tarfile.open(whole) as tar:
        tar.extractall(aside, filter="data")
    wheels = sorted((aside / "wheels").glob("*.whl"))
    for wheel in wheels:
        install(wheel, aside / "site")
    # Ray's processes must start within seconds, too fast to compile what they import.
    compileall.compile_dir(aside / "site", quiet=2, workers=0)
    os.replace(aside, made)
    whole.unlink()
    return {"parts": len(parts), "wheels": len(wheels), "missed": []}


def install(wheel: Path, site: Path) -> None:
    """A wheel without pip, which a bare machine may lack: its files, those of its data folder in their place, and the
    right to run them."""
    with zipfile.ZipFile(wheel) as packed:
        for item in packed.infolist():
            first, _, rest = item.filename.partition("/")
            if first.endswith(".data"):
                kind, _, item.filename = rest.partition("/")
                if kind not in ("purelib", "platlib"):
                    continue
            path = Path(packed.extract(item, site))
            if path.is_file() and item.external_attr >> 16 & 0o111:
                path.chmod(0o755)


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    aside = path.with_name(f"{path.name}.aside")
    aside.write_text(text)
    os.replace(aside, path)


def table(rows: list[dict[str, Any]]) -> str:
    """A line a step."""
    lines = [f"{'step':16} {'verdict':10} figures"]
    for row in rows:
        verdict = next((name for name in ("failed", "not_run", "missed", "unfinished") if row.get(name)), "ok")
        hidden = ("step", "missed", "failed", "not_run", "unfinished")
        figures = [f"{name} {shown(value)}" for name, value in row.items() if name not in hidden]
        said = row.get(verdict) or ""
        text = "; ".join(said) if isinstance(said, list) else str(said) * (said is not True)
        lines.append(f"{row['step']:16} {verdict:10} {', '.join([*([text] if text else []), *figures])}")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A figure, short."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
