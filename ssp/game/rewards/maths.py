"""Boxed mathematics: right when the last `\\boxed{...}` equals a gold as mathematics, by the
`math-verify` library. An answer may be a tower of powers that no computer finishes, and the
library's own time-outs work in a main thread only. So it runs in a process with limits of processor
time and memory (`maths_child`), and an answer that exceeds them is wrong."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

from ssp.base.errors import Fault, InputError
from ssp.game.protocols.calls import boxed
from ssp.game.rewards.match import OBSERVATIONS, spoken

LONGEST = 1000
"""Characters of the longest answer that is parsed."""

CPU_SECONDS = 3
DEADLINE = 120.0
"""Seconds that one comparison may take, with the start of the library, before the process counts as
broken."""


def math(response: str, golds: Sequence[str], observed: Sequence[str] = OBSERVATIONS) -> float:
    """1 when the last box that the policy wrote equals any gold, else 0. `observed`: the tags in
    which it did not write. InputError for a gold that is empty or not mathematics; Fault when the
    comparing process breaks."""
    if not golds or not all(gold.strip(" \n\t$.,;") for gold in golds):
        raise _bad_gold(golds)
    answer = boxed(spoken(response, observed))
    if answer is None or not answer.strip():
        return 0.0
    if answer.strip() in map(str.strip, golds):
        return 1.0
    if len(answer) > LONGEST:
        return 0.0
    return float(any(_COMPARER.equal(gold, answer) for gold in golds))


class Comparer:
    """One comparing process, started at the first need, and again after it has ended. Callers in
    many threads take turns."""

    def __init__(self, cpu_seconds: int = CPU_SECONDS, deadline: float = DEADLINE) -> None:
        self._cpu_seconds, self._deadline = cpu_seconds, deadline
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def equal(self, gold: str, answer: str) -> bool:
        """Whether the two LaTeX expressions are equal; an answer that exceeds its processor time
        is not. InputError for a gold that cannot be read; Fault `math_verify` when the process
        breaks or says nothing."""
        with self._lock:
            reply = self._ask(json.dumps([gold, answer]))
        if reply is None:
            raise _bad_gold([gold])
        return reply

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, line: str) -> bool | None:
        if self._process is None or self._process.poll() is not None:
            program = str(Path(__file__).with_name("maths_child.py"))
            self._process = subprocess.Popen(
                [sys.executable, "-P", program, str(self._cpu_seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the parent, whose end ends this process too
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            heard = bool(wait([process.stdout.fileno()], self._deadline))
        except BrokenPipeError:  # it has just ended
            heard = True
        if not heard:
            self.close()
            raise Fault("math_verify", "no reply in time")
        reply = process.stdout.readline()
        if reply:
            return json.loads(reply)
        code = process.wait()
        self.close()
        if code == -signal.SIGXCPU:
            return False
        raise Fault("math_verify", f"the comparing process ended with code {code}")


def _bad_gold(golds: Sequence[str]) -> InputError:
    rule = "a gold answer of the reward math is an expression in LaTeX"
    return InputError(rule, list(golds), "correct this row of the data")


_COMPARER = Comparer()
