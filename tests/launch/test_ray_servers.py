"""Ray's own servers die, by SIGKILL, while a run starts and while it plays; nobody answers; a port is taken."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from trainruns import FEW, LONG, Run, free_port, run, until

from actors import cluster, servers
from ssp.base.errors import InputError
from ssp.selfplay.settings import load

HERE = {"RAY_ADDRESS": ""}
SOON = 50.0
"""Seconds in which a run ends whose Ray is gone, on a busy machine too; Ray itself takes more than 60."""


def test_the_first_free_dashboard_port_is_rays_to_find() -> None:
    """It takes it by binding, so that two runs which start at once cannot both have found the same one."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        with pytest.raises(InputError, match=f"{taken} is in use"):
            cluster.dashboard_port(load("quickstart", [f"ray.dashboard={taken}"]).ray)
        assert cluster.dashboard_port(load("quickstart", []).ray) is None


def test_a_server_that_dies_at_once_is_seen(tmp_path: Path) -> None:
    """Who was there before is not looked at."""
    look = servers.starting(600.0, "late")
    program = tmp_path / "raylet"
    program.symlink_to("/bin/sleep")
    with psutil.Popen([program, "0.2"]) as process:
        until("its end is seen", lambda: process.status() == psutil.STATUS_ZOMBIE and "raylet" in look())
        assert look() == f"Ray's raylet (process {process.pid}) has ended, and nothing here goes on without it."
        assert servers.starting(600.0, "late")() == "" and servers.starting(-1.0, "late")() == "late"


class Server:
    """A process by its name and its command line; `alive` until it is said to have ended."""

    def __init__(self, pid: int, name: str, *words: str) -> None:
        self.pid, self.alive = pid, True
        self.info = {"name": name, "cmdline": [name, *words]}

    def is_running(self) -> bool:
        return self.alive

    def status(self) -> str:
        return psutil.STATUS_RUNNING


def test_a_second_node_of_this_machine_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its raylet's address begins as the first one's; only the node that this process is on must live."""
    mine = Server(1, "raylet", "--raylet_socket_name=/tmp/s/sockets/raylet", "--session_dir=/tmp/s")
    other = Server(2, "raylet", "--raylet_socket_name=/tmp/s/sockets/raylet.1", "--session_dir=/tmp/s")
    head = Server(3, "gcs_server", "--log_dir=/tmp/s/logs", "--session-dir=/tmp/s")
    monkeypatch.setattr(psutil, "process_iter", lambda fields: [mine, other, head])
    look = servers.playing({"raylet_socket_name": "/tmp/s/sockets/raylet", "session_dir": "/tmp/s"})
    other.alive = False
    assert look() == ""
    head.alive = False
    assert "gcs_server (process 3) has ended" in look()
    head.alive, mine.alive = True, False
    assert "raylet (process 1) has ended" in look()


def _server(made: Run, name: str) -> psutil.Process | None:
    with suppress(psutil.Error):
        return next((p for p in psutil.Process(made.process.pid).children(recursive=True) if p.name() == name), None)
    return None


def _ended(made: Run, name: str) -> str:
    """What a run says that ends because that server was killed."""
    assert made.wait(SOON) == 1
    text = made.text()
    assert (
        re.search(rf"ssp: SspError: Ray's {name} \(process", text) and "Traceback" not in text and "*** " not in text
    ), text
    return text.splitlines()[-1]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly  # in CI: one that dies while Ray starts, below
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
@pytest.mark.timeout(900)
def test_a_run_whose_ray_is_killed_says_what_is_saved_and_goes_on(tmp_path: Path, name: str) -> None:
    settings = (LONG, "save.every=1", *FEW)
    with socket.socket() as port:
        with suppress(OSError):  # where it is somebody else's, it is taken too
            port.bind(("127.0.0.1", 8265))
            port.listen()
        with run(tmp_path / "killed", *settings, env=HERE, config="simulated") as made:
            made.until("a checkpoint", lambda: made.saved() >= 1)
            assert made.text().startswith("starting Ray\n") and "dashboard: http://127.0.0.1:8265\n" not in made.text()
            server = _server(made, name)
            assert server is not None
            server.kill()
            last = _ended(made, name)
    assert f"Step {made.saved()} is saved. Next: the same command with run.dir={made.folder} resume=auto" in last
    if name == "raylet":
        more = (f"steps={made.saved() + 1}", "resume=auto")
        with run(made.folder, *settings, *more, env=HERE, config="simulated") as again:
            again.ends_well()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["gcs_server", pytest.param("raylet", marks=pytest.mark.nightly)])
def test_a_server_that_dies_while_ray_starts_ends_the_run_at_once(tmp_path: Path, name: str) -> None:
    with run(tmp_path / "starts", *FEW, env=HERE, config="simulated") as made:
        server = until(f"{name} is there", lambda: _server(made, name), every=0.01)
        time.sleep(5 * servers.EVERY)  # it is seen
        server.kill()
        assert "Nothing was saved" in _ended(made, name) or "Next: see its logs" in made.text()
    assert not (made.folder / "checkpoints" / "state.json").exists()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_ssp_cluster_says_the_same(tmp_path: Path) -> None:
    env = {**HERE, "NNODES": "1", "MASTER_PORT": str(free_port(2))}
    with run(
        tmp_path / "cluster", LONG, "save.every=1", *FEW, env=env, config="simulated", module="launch.cluster"
    ) as made:
        made.until("a checkpoint", lambda: made.saved() >= 1)
        server = _server(made, "raylet")
        assert server is not None
        server.kill()
        # `ray start` ends the other server as soon as it sees that one is gone: either may be seen first.
        assert "resume=auto" in _ended(made, "(raylet|gcs_server)")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("listens", [True, False])
def test_an_address_that_nobody_answers_ends_in_time(listens: bool) -> None:
    join = "from actors.cluster import *; cfg = RayConfig(); cfg.start_timeout = 3; connect(cfg)"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        env = {**os.environ, "RAY_ADDRESS": address}
        made = subprocess.run([sys.executable, "-c", join], env=env, capture_output=True, text=True, timeout=SOON)
    said = (
        f"no Ray cluster answers at RAY_ADDRESS={address} within placement.call_timeout=3 s. Next: correct RAY_ADDRESS"
    )
    assert made.returncode == 1 and said in made.stderr
