"""`launch.cluster` on two real nodes, each in a network of its own: the run of one node, deaths, and coming back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import inprocess
import pytest
from trainruns import LONG, SMALL, Run, ledger_is_sound, run, until

from launch import doctor
from ssp.base.episode import ROLES
from ssp.selfplay.settings import load

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]

HEAD = "10.77.31.1"
WORKER = "10.77.31.2"
SPREAD = ("placement.solvers=2", "ray.dashboard=0")
"""The first node has room for all actors, and more than half of its processors are asked for, above which Ray takes
the other one too."""


class Network:
    """Two network namespaces with a cable between them, and the processes in them."""

    def __init__(self, folder: Path) -> None:
        tag = uuid.uuid4().hex[:4]
        self.names = (f"ssp{tag}a", f"ssp{tag}b")
        self.env = {
            "NNODES": "2",
            "MASTER_ADDR": HEAD,
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_AUTH_MODE": "",
        }
        first, second = self.names
        for name in self.names:
            _ip("netns", "add", name)
        _ip("link", "add", "cable", "netns", first, "type", "veth", "peer", "name", "cable", "netns", second)
        for name, address in ((first, HEAD), (second, WORKER)):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def node(self, rank: int, folder: Path, *settings: str, config: str = "") -> AbstractContextManager[Run]:
        """`launch.cluster` in the namespace of that rank. `config`: another one than the small quickstart."""
        env = {**self.env, "RANK": str(rank)}
        core = str(rank % (os.cpu_count() or 1))
        inside = ["taskset", "-c", core, "ip", "netns", "exec", self.names[rank]]
        return run(folder, *SPREAD, *settings, config=config, env=env, module="launch.cluster", within=inside)

    def listeners(self, rank: int) -> dict[int, set[str]]:
        """Ports on which somebody listens in the namespace of that rank, with the addresses."""
        found: dict[int, set[str]] = defaultdict(set)
        for line in _ip("netns", "exec", self.names[rank], "ss", "-H", "-ltn").splitlines():
            address, _, port = line.split()[3].rpartition(":")
            found[int(port)].add(address.strip("[]").removeprefix("::ffff:"))
        return found

    def asked(self, path: str, token: str = "", post: str = "") -> int:
        """What the dashboard answers somebody on the other node: its HTTP status."""
        headers = ["-H", f"Authorization: Bearer {token}"] if token else []
        body = ["-H", "Content-Type: application/json", "-d", post] if post else []
        curl = ["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", "--max-time", "60", *headers, *body]
        return int(_ip("netns", "exec", self.names[1], *curl, f"http://{HEAD}:8265{path}"))

    def pids(self, rank: int) -> list[int]:
        """Processes in the namespace of that rank."""
        return [int(word) for word in _ip("netns", "pids", self.names[rank]).split()]

    def actors(self, rank: int, kind: str = "") -> list[int]:
        """Process ids of living actors on the node of that rank (of one `kind`: "Solver"): by their titles, which a look at
        the dashboard would take seconds for. An actor that is still being made has another title."""
        return [pid for pid in self.pids(rank) if re.match(rf"ray::\w*{kind}Actor\b", _title(pid))]

    def end(self) -> None:
        """Remove the namespaces; every process in them ends."""
        for name in self.names:
            for pid in _ip("netns", "pids", name).split():
                os.kill(int(pid), signal.SIGKILL)
            _ip("netns", "del", name)


def _title(pid: int) -> str:
    with suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        made = Network(tmp_path_factory.mktemp("network"))
    except FileNotFoundError:
        pytest.skip("network namespaces need iproute2 (the command ip)")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    yield made
    made.end()


def _digest(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert doctor.main(["--ledger", str(folder / "ledger.db"), "--digest"]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def _says(made: Run, words: str, times: int = 1) -> Callable[[], bool]:
    return lambda: made.text().count(words) >= times


@pytest.mark.covers("RS-10", "SR-12")
def test_two_nodes_play_the_run_of_one(network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other rank starts first, and ends with the head."""
    one = inprocess.play(load("quickstart", [*SMALL, *SPREAD, "steps=2", f"run.dir={tmp_path / 'one'}"]), "quickstart")
    with network.node(1, tmp_path / "two", "steps=2") as worker:
        worker.until("it waits for the head", _says(worker, f"waiting for the head at {HEAD}:6379"))
        with network.node(0, tmp_path / "two", "steps=2") as two:
            two.until("actors on both nodes", lambda: network.actors(0) and network.actors(1), 0.05)
            two.ends_well()
            assert worker.wait() == 0, worker.text()
            until("no process is left", lambda: not network.pids(0) and not network.pids(1), 60.0)
    assert "the run has ended (exit code 0 on rank 0)" in worker.text()
    for role in ROLES:
        ours, theirs = (
            [(row["loss"], row["grad_norm"]) for row in rows] for rows in (two.rows(role), one.figures(role))
        )
        assert ours == theirs and len(ours) == 2
    assert _digest(two.folder, capsys) == _digest(one.folder.path, capsys)
    ledger_is_sound(two)


@pytest.mark.nightly
@pytest.mark.covers("U9", "U10")
def test_a_head_that_is_killed_leaves_nothing_and_the_same_command_goes_on(network: Network, tmp_path: Path) -> None:
    """The other rank says what has happened; the next start needs no cleaning. Meanwhile strangers get nothing."""
    settings = (*SMALL, "save.every=1", "resume=auto")  # of a run without a model, which starts sooner
    with (
        network.node(0, tmp_path / "again", LONG, *settings, config="simulated") as head,
        network.node(1, tmp_path / "again", LONG, *settings, config="simulated") as worker,
    ):
        head.until("a checkpoint", lambda: head.saved() >= 1)
        _only_with_the_token(network)
        _listens_where_the_page_says(network)
        head.process.kill()
        assert worker.wait() == 1, worker.text()
        assert "the head vanished without saying goodbye" in worker.text()
        until("no process is left", lambda: not network.pids(0) and not network.pids(1), 60.0)
    last = f"steps={head.saved() + 1}"
    with (
        network.node(0, tmp_path / "again", last, *settings, config="simulated") as head,
        network.node(1, tmp_path / "again", last, *settings, config="simulated") as worker,
    ):
        head.ends_well()
        assert worker.wait() == 0
    assert f"steps={head.saved()}" == last
    ledger_is_sound(head)


def _only_with_the_token(network: Network) -> None:
    """The dashboard, its state and its jobs; what a job would do is never run."""
    job = json.dumps({"entrypoint": "touch /tmp/never"})
    paths = {"/nodes?view=summary": "", "/api/v0/actors": "", "/api/jobs/": ""}
    for path, post in (*paths.items(), ("/api/jobs/", job)):
        for token in ("", "0" * 64):
            assert network.asked(path, token, post) in (401, 403), (path, post, token)
    secret = Path(network.env["RAY_AUTH_TOKEN_PATH"]).read_text().strip()
    assert {network.asked(path, secret) for path in paths} == {200}


def _listens_where_the_page_says(network: Network) -> None:
    """The table of docs/cluster.md: what a Ray that binds otherwise would change there."""
    head, worker = network.listeners(0), network.listeners(1)
    everywhere = {"*", "0.0.0.0"}
    assert head.pop(8265) == {HEAD}
    assert all(head.pop(port) <= everywhere for port in (6379, 44217, 44227))
    for own, found in ((HEAD, head), (WORKER, worker)):
        narrow = [addresses for addresses in found.values() if not addresses <= everywhere]
        assert len(narrow) >= 2 and all(addresses <= {own, "127.0.0.1"} for addresses in narrow), found


@pytest.mark.long
@pytest.mark.covers("RS-10", "SR-12")
def test_a_node_that_dies_comes_back_and_leaves(network: Network, tmp_path: Path) -> None:
    """Killed: its work moves. A new process of the same rank: it gets work. SIGTERM there: it leaves, and the run goes
    on. SIGTERM on the head: the run ends saved, and the other rank with it."""
    folder, settings = tmp_path / "moves", (LONG, "save.every=1")
    with network.node(0, folder, *settings) as head:
        with network.node(1, folder, *settings) as worker:
            head.until("the first step", lambda: head.steps() >= 1)
            assert network.actors(1)
            before = head.steps()
            for pid in network.pids(1):
                os.kill(pid, signal.SIGKILL)
            head.until("work has moved", lambda: head.steps() >= before + 3)
            assert network.actors(0) and not network.actors(1)
        with network.node(1, folder, *settings) as worker:
            worker.until("it is back", _says(worker, "is in the cluster"))
            # Actors that live stay where they are: one that ends gets the new node, which has more room.
            here, there = (network.actors(rank, "Solver") for rank in (0, 1))
            assert len(here) == 2 and not there
            os.kill(here[0], signal.SIGKILL)
            head.until("the new node plays", lambda: network.actors(1, "Solver"))
            before = head.steps()
            head.until("the run goes on", lambda: head.steps() >= before + 1)
            worker.process.terminate()
            assert worker.wait() == 130, worker.text()
            until("no process is left there", lambda: not network.pids(1), 60.0)
            before = head.steps()
            head.until("the run goes on", lambda: head.steps() >= before + 2)
        with network.node(1, folder, *settings) as worker:
            worker.until("it is back", _says(worker, "is in the cluster"))
            head.process.terminate()
            assert head.wait() == 130, head.text()
            assert worker.wait() == 0, worker.text()
    assert head.saved() == head.steps()
    ledger_is_sound(head)
    assert doctor.main(["--ledger", str(folder / "ledger.db")]) == 0
