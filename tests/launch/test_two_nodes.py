"""`launch.cluster` on two real nodes, each in a network of its own: the run of one node, deaths, and coming back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from trainruns import LONG, Run, free_port, ledger_is_sound, marked, run, until

from launch import doctor

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]

HEAD = "10.77.31.1"
WORKER = "10.77.31.2"
SPREAD = ("placement.solvers=2", "placement.cpus=0.3", "ray.cpus=4")
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

    def node(self, rank: int, folder: Path, *settings: str) -> AbstractContextManager[Run]:
        """`launch.cluster` in the namespace of that rank."""
        inside = ["ip", "netns", "exec", self.names[rank]]
        return run(
            folder, *SPREAD, *settings, env={**self.env, "RANK": str(rank)}, module="launch.cluster", within=inside
        )

    def pids(self, rank: int) -> list[int]:
        """Processes in the namespace of that rank."""
        return [int(word) for word in _ip("netns", "pids", self.names[rank]).split()]

    def actors(self, run_name: str) -> dict[str, tuple[str, int]]:
        """Living named actors of a run, with the address of their node and process id: the dashboard's answer."""
        program = (
            "import json; from ray.util.state import list_actors, list_nodes\n"
            f"at = dict(address='http://{HEAD}:8265', limit=1000, timeout=60)\n"
            "nodes = {node.node_id: node.node_ip for node in list_nodes(**at)}\n"
            "found = [a for a in list_actors(**at) if a.state == 'ALIVE']\n"
            "print(json.dumps({a.name: (nodes[a.node_id], a.pid) for a in found}))"
        )
        done = subprocess.run(
            ["ip", "netns", "exec", self.names[0], sys.executable, "-c", program],
            env={**os.environ, **self.env, "RAY_AUTH_MODE": "token"},
            capture_output=True,
            text=True,
            check=False,
        )
        found = {} if done.returncode else json.loads(done.stdout.splitlines()[-1])  # the dashboard is still starting
        return {name.removeprefix(f"{run_name}-"): (ip, pid) for name, (ip, pid) in found.items()}

    def end(self) -> None:
        """Remove the namespaces; every process in them ends."""
        for name in self.names:
            for pid in _ip("netns", "pids", name).split():
                os.kill(int(pid), signal.SIGKILL)
            _ip("netns", "del", name)


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


def _digest(made: Run, capsys: pytest.CaptureFixture[str]) -> str:
    assert doctor.main(["--ledger", str(made.folder / "ledger.db"), "--digest"]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def _losses(made: Run) -> list[tuple[int, str, float, float]]:
    return [
        (row["step"], role, row["loss"], row["grad_norm"]) for role in ("proposer", "solver") for row in made.rows(role)
    ]


def _says(made: Run, words: str, times: int = 1) -> Callable[[], bool]:
    return lambda: made.text().count(words) >= times


@pytest.mark.covers("RS-10")
def test_two_nodes_play_the_run_of_one(network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other rank starts first, and ends with the head."""
    alone = {"NNODES": "1", "MASTER_PORT": str(free_port())}
    with run(tmp_path / "one", "placement.solvers=2", "steps=3", env=alone, module="launch.cluster") as one:
        one.ends_well()
        until("no process of the run is left", lambda: not marked(one.mark), 60.0)
    with network.node(1, tmp_path / "two", "steps=3") as worker:
        worker.until("it waits for the head", _says(worker, f"waiting for the head at {HEAD}:6380"))
        with network.node(0, tmp_path / "two", "steps=3") as two:
            both = {HEAD, WORKER}
            two.until("actors on both nodes", lambda: {at for at, _ in network.actors("two").values()} == both)
            two.ends_well()
            assert worker.wait() == 0, worker.text()
            until("no process is left", lambda: not network.pids(0) and not network.pids(1), 60.0)
    assert "the run has ended (exit code 0 on rank 0)" in worker.text()
    assert _losses(two) == _losses(one) and len(_losses(one)) == 6
    assert _digest(two, capsys) == _digest(one, capsys)
    ledger_is_sound(two)


def test_a_head_that_is_killed_leaves_nothing_and_the_same_command_goes_on(network: Network, tmp_path: Path) -> None:
    """The other rank says what has happened; the next start needs no cleaning."""
    settings = ("save.every=1", "resume=auto")
    with (
        network.node(0, tmp_path / "again", LONG, *settings) as head,
        network.node(1, tmp_path / "again", LONG, *settings) as worker,
    ):
        head.until("a checkpoint", lambda: head.saved() >= 1)
        head.process.kill()
        assert worker.wait() == 1, worker.text()
        assert "the head vanished without saying goodbye" in worker.text()
        until("no process is left", lambda: not network.pids(0) and not network.pids(1), 60.0)
    last = f"steps={head.saved() + 1}"
    with (
        network.node(0, tmp_path / "again", last, *settings) as head,
        network.node(1, tmp_path / "again", last, *settings) as worker,
    ):
        head.ends_well()
        assert worker.wait() == 0
    assert f"steps={head.saved()}" == last
    ledger_is_sound(head)


@pytest.mark.long
@pytest.mark.covers("RS-10")
def test_a_node_that_dies_comes_back_and_leaves(network: Network, tmp_path: Path) -> None:
    """Killed: its work moves. A new process of the same rank: it gets work. SIGTERM there: it leaves, and the run goes
    on. SIGTERM on the head: the run ends saved, and the other rank with it."""
    folder, settings = tmp_path / "moves", (LONG, "save.every=1")
    with network.node(0, folder, *settings) as head:
        with network.node(1, folder, *settings) as worker:
            head.until("the first step", lambda: head.steps() >= 1)
            assert any(address == WORKER for address, _ in network.actors("moves").values())
            before = head.steps()
            for pid in network.pids(1):
                os.kill(pid, signal.SIGKILL)
            head.until("the head notices", _says(head, "is lost"))
            head.until("work has moved", lambda: head.steps() >= before + 3)
            assert {address for address, _ in network.actors("moves").values()} == {HEAD}
        with network.node(1, folder, *settings) as worker:
            head.until("it is back", _says(head, "is there", 2))
            # Actors that live stay where they are: one that ends gets the new node, which has more room.
            address, pid = network.actors("moves")["solver-0"]
            assert address == HEAD
            os.kill(pid, signal.SIGKILL)
            head.until("the new node plays", lambda: network.actors("moves").get("solver-0", ("", 0))[0] == WORKER, 1.0)
            before = head.steps()
            head.until("the run goes on", lambda: head.steps() >= before + 1)
            worker.process.terminate()
            assert worker.wait() == 130, worker.text()
            head.until("the head hears it", _says(head, "has left: it was asked to"))
            until("no process is left there", lambda: not network.pids(1), 60.0)
            before = head.steps()
            head.until("the run goes on", lambda: head.steps() >= before + 2)
        with network.node(1, folder, *settings) as worker:
            head.until("it is back", _says(head, "is there", 3))
            head.process.terminate()
            assert head.wait() == 130, head.text()
            assert worker.wait() == 0, worker.text()
    assert head.saved() == head.steps()
    ledger_is_sound(head)
    assert doctor.main(["--ledger", str(folder / "ledger.db")]) == 0
