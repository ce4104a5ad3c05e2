"""Runs with real policies in processes that kill themselves with SIGKILL, for `test_kill_nine.py`.

`python ninelives.py OUT`: a run of six steps in OUT/whole that nobody touches; and in OUT/killed one that dies in each of LIVES and
is gone on with. Each life is a child of its own, forked before anything is computed. What a run logs goes to log.jsonl.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[place]) for place in (0, 1, 2)]

import torch  # noqa: E402
from fakes import Sink, Stage, config  # noqa: E402

import ssp.learning.learner  # noqa: E402, F401  (with transformers: seconds, which each child would take)
import tests.conftest  # noqa: E402, F401  (one thread)
from ssp.learning.coldstart import ARTEFACT  # noqa: E402
from ssp.record.ledger import Ledger  # noqa: E402
from ssp.record.runfolder import RunFolder  # noqa: E402
from tests import lessons  # noqa: E402

STEPS = 6
BLOCK = {"algorithm": "reinforce_running", "loss": "pg", "kl__coef": 0.1, "kl__target": 0.01}
SETTINGS = {f"{role}__{key}": value for role in ("proposer", "solver") for key, value in BLOCK.items()}
SETTINGS |= {"steps": STEPS, "save__every": 1, "eval__every": 0, "proposer__batch": 4, "solver__batch": 3}
SETTINGS |= {"solver__rehearsal__share": 0.2, "solver__rehearsal__coef": 0.5}
LIVES = ("a checkpoint is being written", "a checkpoint is renamed", "state.json is not there yet", "before a commit")


class Log(Sink):
    """Writes each figure down at once."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        for line in file.read_text().splitlines() if file.exists() else ():
            step, role, values = json.loads(line)
            self.earlier.append({"step": step, "role": role, **values})

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps([step, role, values]) + "\n")


def die_at(call: int, function: Callable[..., Any], after: bool = False) -> Callable[..., Any]:
    """`function`, in whose n-th call this process is killed: before its effect, or after it."""
    left = [call]

    def dying(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and after:
            function(*args, **kwargs)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return dying


def arm(life: str) -> None:
    """Where this process will die. The first save of a new run is that of step 0, of both roles."""
    if life == LIVES[0]:
        torch.save = die_at(7, torch.save)  # one of step 3; the weights are there already
    elif life == LIVES[1]:
        os.rename = die_at(3, os.rename, after=True)
    elif life == LIVES[2]:
        RunFolder.write_state = die_at(1, RunFolder.write_state)  # type: ignore[method-assign]
    elif life == LIVES[3]:
        Ledger.commit = die_at(3, Ledger.commit)  # type: ignore[method-assign]


def play(folder: Path, life: str) -> int:
    """One process; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    arm(life)
    traces = str(folder.parent / "traces.jsonl")
    stage = Stage(config(**SETTINGS, solver__rehearsal__data=traces), folder, model=ARTEFACT)
    stage.sink = Log(folder / "log.jsonl")
    asyncio.run(stage.game().run())
    stage.settled()
    os._exit(0)


def main(out: Path) -> None:
    gc.enable()  # conftest leaves that to pytest
    lessons.write(out / "traces.jsonl", 12)
    codes = {"whole": play(out / "whole", "")}
    steps = []
    for life in (*LIVES, ""):
        codes[life] = play(out / "killed", life)
        steps.append(json.loads((out / "killed" / "checkpoints" / "state.json").read_text())["step"])
    (out / "ends.json").write_text(json.dumps([codes, steps]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
