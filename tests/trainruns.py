"""Runs of the real program for tests: started as processes, watched through their files, ended by process id.

Owns the small settings that make a run last seconds, and the mark in the environment by which every process of a run
or cluster is found again. Promises bounded waits. Refuses to kill by name.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

REPO = Path(__file__).parent.parent
MARK = "SSP_TEST_MARK"
POLICY = REPO / "ssp" / "learning" / "coldstart" / "artefact"
"""The shipped policy as a folder: tests never train a cold start, also while its recipe is being changed."""
LONG = "steps=4000"
"""More than any test needs: it stops the run when it has seen enough."""
FEW = ["placement.proposers=1", "placement.solvers=1", "placement.judges=1", "retriever.shards=1"]
SMALL = ["game.attempts=3", "eval.every=0", "proposer.batch=12", "solver.batch=6"]
SMALL += ["eval.final_questions_per_hop=4", *FEW]
PAIRS = ["placement.solvers=2", "retriever.shards=2"]
"""As many as by default, where the division of work matters: each process more is seconds of imports."""
ONE_MODEL = ["proposer.engine.kind=scripted", "proposer.learner.kind=simulated", "referee.verifier=none"]
ONE_MODEL += ["referee.evidence=none", "referee.rules=[malformed, empty, leakage]", "health.on_collapse=warn"]
ONE_MODEL += ["solver.reward=ssp.learning.tiny.reward:letters"]  # a right answer to a script's question would be luck
"""A run that starts soon: only the solver has a model."""
PATIENCE = 240.0
"""Seconds that anything may take: the machine may be busy with other work."""
STARTS = 3
"""How often a cluster is started before the tests that need one fail."""
SOONER = {"RAY_health_check_period_ms": "1000"}
"""A node that was killed is given up after as many failures as usual, which follow each other sooner."""
AGENTS = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port", "metrics-export-port", "runtime-env-agent-port")
"""Ports of a node's agents."""


def until(what: str, check: Callable[[], Any], seconds: float = PATIENCE, every: float = 0.1) -> Any:
    """Poll until `check()` is true and return its value; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


def free_port(span: int = 1) -> int:
    """The first of `span` neighbouring loopback ports that nobody uses now. They lie below those that the kernel gives away
    by itself (32768 on) and above those of Ray's workers: nobody comes upon them by chance before the test does."""
    while True:
        first = random.SystemRandom().randint(20_000, 32_000)  # not as a seed says, which two workers share
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + span):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def alive(pid: int) -> bool:
    """Whether a process with that id runs (one that only waits to be collected does not)."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def marked(mark: str) -> list[int]:
    """Ids of living processes that carry `mark` in their environment."""
    needle, found = f"{MARK}={mark}".encode(), []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text()
            if stat[stat.rindex(")") + 2] != "Z" and needle in Path(entry.path, "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # gone, or not ours
    return found


def end_marked(mark: str) -> None:
    """Kill what still carries `mark`."""
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until("every process of the test has ended", lambda: not marked(mark), 30.0)


class Left:
    """What a run left in its folder, or has written so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, role: str) -> list[dict[str, Any]]:
        """Complete lines of metrics.jsonl of one role."""
        file = self.folder / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [row for row in map(json.loads, lines) if row["role"] == role]

    def steps(self) -> int:
        return max((row["step"] for row in self.rows("solver")), default=0)

    def saved(self) -> int:
        """The step that state.json names, -1 without one."""
        file = self.folder / "checkpoints" / "state.json"
        return int(json.loads(file.read_text())["step"]) if file.exists() else -1

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        file = self.folder / "ledger.db"
        if not file.exists():
            return []
        database = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10.0)
        try:
            return database.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []
        finally:
            database.close()

    def counts(self) -> dict[str, int]:
        """Episodes by cause, of those that have one."""
        return {
            str(cause): int(count)
            for cause, count in self.sql("SELECT cause, count(*) FROM episodes WHERE cause IS NOT NULL GROUP BY cause")
        }


class Run(Left):
    """One `python -m launch.train` process and its run folder: of quickstart made small, of a `recipe` with --tiny, or of a
    `config` as it is.

    `module`: another command; `within`: words before it, of a program that starts it.
    """

    def __init__(
        self,
        folder: Path,
        *settings: str,
        env: dict[str, str] | None = None,
        recipe: str = "",
        config: str = "",
        module: str = "launch.train",
        within: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self.mark = uuid.uuid4().hex
        self.output = folder.parent / f"{folder.name}.{self.mark[:6]}.txt"
        chosen = ["--config", recipe, "--tiny"] if recipe else ["--config", "quickstart", *SMALL]
        chosen = ["--config", config] if config else chosen
        command = [*within, sys.executable, "-m", module, *chosen, f"run.dir={folder}"]
        environment = {**os.environ, **(env or {}), MARK: self.mark, "PYTHONPATH": str(REPO)}
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, *settings], cwd=folder.parent, env=environment, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code; the whole output in the message when it does not end."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end within {seconds:.0f} s:\n{self.text()}") from None

    def ends_well(self, seconds: float = PATIENCE) -> None:
        code = self.wait(seconds)
        assert code == 0, f"exit code {code}:\n{self.text()}"

    def stops(self) -> None:
        """Ctrl-C, now that all has been seen: what is in flight is finished and saved. Assert the exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.wait()
        assert code == 130, f"exit code {code}:\n{self.text()}"

    def until(self, what: str, check: Callable[[], Any], every: float = 0.1, seconds: float = PATIENCE) -> Any:
        """Poll while the run lives."""

        def alive_and() -> Any:
            found = check()
            assert found or self.process.poll() is None, f"the run ended before {what}:\n{self.text()}"
            return found

        return until(what, alive_and, seconds, every)


@contextmanager
def run(folder: Path, *settings: str, **how: Any) -> Iterator[Run]:
    """A run that leaves no process behind, whatever the test does. `how`: see `Run`."""
    made = Run(folder, *settings, **how)
    try:
        yield made
    finally:
        end_marked(made.mark)


def ledger_is_sound(made: Left, roles: Sequence[str] = ("proposer", "solver")) -> None:
    """Law 3 over a finished run: conservation, every episode final, trained once by a live commit, voids without value."""
    from ssp.record.ledger import Ledger

    ledger = Ledger(made.folder / "ledger.db", readonly=True)
    tally = ledger.check()
    ledger.close()
    open_states = {"created", "running", "grading", "queued"}
    assert not [
        (role, state) for role, states in tally.items() for state in states if state in open_states and states[state]
    ]
    assert all(tally[role].get("trained") for role in roles)
    assert made.sql("SELECT count(*) FROM episodes WHERE outcome = 'void' AND reward IS NOT NULL") == [(0,)]
    assert made.sql("SELECT count(*) FROM episodes WHERE state = 'trained' AND outcome = 'void'") == [(0,)]
    again = "SELECT role, step FROM commits WHERE NOT rolled_back GROUP BY role, step HAVING count(*) > 1"
    assert made.sql(again) == []


class Cluster:
    """A cluster of its own, made by `ray start --head`, on loopback ports of its own. `several`: other nodes may `join`,
    which Ray's switch for loopback only forbids. `gpus` that it claims to have."""

    def __init__(self, folder: Path, several: bool = False, gpus: int = 0) -> None:
        self._nodes = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"} if several else {}
        self.folder, self.mark = folder, uuid.uuid4().hex
        for left in reversed(range(STARTS)):
            try:
                self._start_head(gpus)
                return
            except BaseException as error:
                self.end()  # Ray leaves what it has started when the rest takes too long
                if not left or not isinstance(error, AssertionError):
                    raise
                print(f"a cluster did not start, and is started anew:\n{error}\n{self._last_words()}", file=sys.stderr)

    def _start_head(self, gpus: int) -> None:
        self.port, self.dashboard_port = free_port(), free_port()
        self.address, self.dashboard = f"127.0.0.1:{self.port}", f"http://127.0.0.1:{self.dashboard_port}"
        # Ports that are not told are read from files, for which a raylet waits no longer than Ray's constant says, and aborts.
        ports = {name: free_port() for name in ("ray-client-server-port", *AGENTS)}
        ports |= {"port": self.port, "dashboard-port": self.dashboard_port}
        head = ["--head", "--num-cpus=4", f"--num-gpus={gpus}", "--dashboard-host=127.0.0.1"]
        self._start(*head, f"--temp-dir={self.folder}", *[f"--{name}={value}" for name, value in ports.items()])

    def _last_words(self) -> str:
        """The end of what Ray's servers wrote."""
        logs = sorted(self.folder.glob("session_latest/logs/*.out"))
        ends = ["\n".join(log.read_text(errors="replace").splitlines()[-30:]) for log in logs]
        return "\n".join(f"== {log.name}\n{end}" for log, end in zip(logs, ends, strict=True))

    def join(self, cpus: int) -> None:
        """A second node on this machine, with `cpus`; it ends with the cluster."""
        ports = [f"--{name}={free_port()}" for name in AGENTS]
        self._start(f"--address={self.address}", "--node-ip-address=127.0.0.1", f"--num-cpus={cpus}", *ports)

    def _start(self, *options: str) -> None:
        command = [str(Path(sys.executable).parent / "ray"), "start", "--disable-usage-stats", *options]
        done = subprocess.run(
            [*command, "--object-store-memory=256000000", "--include-log-monitor=false"],  # nobody reads what it sends
            env={**os.environ, **SOONER, **self._nodes, MARK: self.mark, "PYTHONPATH": str(REPO)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def env(self) -> dict[str, str]:
        return {"RAY_ADDRESS": self.address}

    def actors(self, run_name: str) -> dict[str, int]:
        """Living named actors of one run, by the part of the name behind the run's, with process ids."""
        from ray.util.state import list_actors  # the dashboard's own answer

        found = list_actors(address=self.dashboard, limit=1000, timeout=60)
        there = [actor for actor in found if actor.name.startswith(f"{run_name}-") and actor.state == "ALIVE"]
        return {actor.name.removeprefix(f"{run_name}-"): int(actor.pid) for actor in there}

    def end(self) -> None:
        end_marked(self.mark)
