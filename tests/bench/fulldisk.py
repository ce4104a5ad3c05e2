"""A disk that is full for a moment, under a run that plays on real Ray: it goes on, or ends with a paragraph, and Ctrl-C works.

`python tests/bench/fulldisk.py --kinds tensorboard run ledger --runs 6` needs root, for it mounts disks (tmpfs): one of
1 MB for TensorBoard's files, one of which the run folder has 1 MB left, and one for the ledger. Each is filled while the run plays, and freed
after some seconds. In turn Ctrl-C comes as soon as it is full, some seconds later, and when it is freed; where nothing ends, a second one.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
from trainruns import FEW, LONG, Left, Run, run, until  # noqa: E402

MB = 2**20
START_MB = 230
"""What a run asks of its disk before it starts, and a little more."""
LEDGER_MB = 12
"""What a ledger and the log beside it need to begin with; on 1 MB (`small-ledger`) a run may end before its first step."""
MOMENTS = ("at once", "while full", "when freed")
FULL_SECONDS, END_SECONDS = 4.0, 120.0
SETTINGS = ["save.every=1", "eval.every=0", "eval.final_questions_per_hop=4", "resume=auto", *FEW]


@contextmanager
def disk(place: Path, megabytes: int) -> Iterator[None]:
    """A tmpfs of that size at `place`."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path, left: int = 0) -> Path:
    """Write a file until `left` bytes are free; returns it."""
    ballast = place / f"ballast-{time.time_ns()}"
    with ballast.open("wb", buffering=0) as file:
        try:
            while (free := shutil.disk_usage(place).free - left) > 0:
                file.write(b"\0" * min(free, MB))
        except OSError:
            pass
    return ballast


@contextmanager
def prepared(kind: str, begun: Path, folder: Path) -> Iterator[Path]:
    """A copy of a run that has begun, in `folder`, with the small disk of `kind`; yields where that is mounted."""
    if kind == "run":
        with disk(folder, START_MB):
            shutil.copytree(begun, folder, dirs_exist_ok=True)
            yield folder
        return
    shutil.copytree(begun, folder)
    place = folder / "tensorboard" if kind == "tensorboard" else folder.with_name(f"{folder.name}-disk")
    with disk(place, LEDGER_MB if kind == "ledger" else 1):
        if kind != "tensorboard":
            shutil.move(folder / "ledger.db", place / "ledger.db")
            (folder / "ledger.db").symlink_to(place / "ledger.db")
        yield place


def one(kind: str, begun: Path, folder: Path, moment: str) -> str:
    """One run; what came of it, in words. AssertionError where it hangs, or ends without a paragraph."""
    with prepared(kind, begun, folder) as place, run(folder, LONG, *SETTINGS, config="simulated") as made:
        played = made.steps()
        if kind == "small-ledger":  # it may end before its first step
            until("it plays, or has ended", lambda: made.process.poll() is not None or made.steps() >= played + 2)
        else:
            made.until("it plays", lambda: made.steps() >= played + 2)
        if kind == "run":
            fill(place, MB)  # what is left is a disk of 1 MB
        ballast = fill(place)
        if moment == "at once":
            interrupted = interrupt(made)
        time.sleep(FULL_SECONDS)
        if moment == "while full":
            interrupted = interrupt(made)
        time.sleep(1.0)
        ballast.unlink()
        if moment == "when freed":
            if kind != "run":
                goes_on(made)
            interrupted = interrupt(made)
        return f"Ctrl-C {moment}{'' if interrupted else ' (it had ended)'}: {ended(made)}"


def interrupt(made: Run) -> bool:
    """Ctrl-C; whether the run still lived."""
    lives = made.process.poll() is None
    if lives:
        made.process.send_signal(signal.SIGINT)
    return lives


def goes_on(made: Run) -> None:
    """Wait until it plays a step more, by its ledger, or has ended."""
    query = "SELECT max(step) FROM commits"
    before = made.sql(query)
    until("a step more, or the end", lambda: made.process.poll() is not None or made.sql(query) > before)


def ended(made: Run) -> str:
    """How it ended. A second Ctrl-C comes after a while, as a person would give it."""
    second = ""
    try:
        code = made.process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        made.process.send_signal(signal.SIGINT)
        code, second = made.process.wait(10.0), " after a second Ctrl-C"
    text = made.text()
    assert code in (1, 2, 130), f"exit code {code}:\n{text}"
    assert "Traceback" not in text and "a bug in ssp" not in text, text
    assert code == 130 or ("Next: " in text and " space" in text), text
    said = [line for line in text.splitlines() if line.startswith("ssp: ") or "any more" in line]
    return f"exit code {code}{second}; {' | '.join(said) or 'nothing to say'}"


def main() -> int:
    """Run the kinds; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["tensorboard", "run", "ledger", "small-ledger"])
    parser.add_argument("--runs", type=int, default=6, help="runs of each kind (6)")
    parser.add_argument("--first", type=int, default=0, help="number of the first, which decides when Ctrl-C comes")
    parser.add_argument("--begun", type=Path, help="a folder where the run that all go on from lies, or will lie")
    args, failed = parser.parse_args(), 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # disks and runs go whatever happens
    with tempfile.TemporaryDirectory(prefix="full", ignore_cleanup_errors=True) as base:
        begun = args.begun or Path(base) / "begun"
        if not begun.exists():
            with run(begun, "steps=1", *SETTINGS, config="simulated") as first:
                first.ends_well()
        assert Left(begun).steps() == 1
        for kind in args.kinds:
            for number in range(args.first, args.first + args.runs):
                began = time.monotonic()
                try:
                    told = one(kind, begun, Path(base) / f"{kind}-{number}", MOMENTS[number % 3])
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    failed, told = failed + 1, f"FAILED: {error}"
                print(f"{kind} {number + 1}: {told} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
