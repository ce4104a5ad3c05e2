"""`ssp cluster` before Ray: what the environment must say, ports, and what a dead run has left. No Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from trainruns import REPO, free_port, until

from launch import cluster, main
from launch.nodes import ports, raynode
from launch.nodes.raynode import MARK
from ssp.base.errors import InputError

FOUR = {"NNODES": "4", "MASTER_ADDR": "127.0.0.1"}


def seat(**env: str) -> cluster.NodeSeat:
    return cluster.read_seat(env)


def test_what_the_environment_says() -> None:
    assert seat(NNODES="1") == cluster.NodeSeat(1, 0, "127.0.0.1", 6379)
    there = seat(**FOUR, RANK="3", MASTER_PORT="7000")
    assert (there.rank, there.ray) == (3, "127.0.0.1:7000")
    assert seat(NNODES="2", RANK="0", MASTER_ADDR="localhost").address == "127.0.0.1"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "NNODES is a whole number from 1 to 100000. Found: no NNODES"),
        ({"NNODES": "0"}, "Found: 0"),
        ({**FOUR}, "RANK is a whole number from 0 to 3. Found: no RANK"),
        ({**FOUR, "RANK": "4"}, "Found: 4"),
        ({**FOUR, "RANK": "-1"}, "Found: -1"),
        ({**FOUR, "RANK": "1", "MASTER_PORT": "http"}, "MASTER_PORT is a whole number from 1024 to 65535. Found: http"),
        ({"NNODES": "2", "RANK": "1"}, "MASTER_ADDR is set where NNODES is above 1"),
        (
            {"NNODES": "2", "RANK": "0", "MASTER_ADDR": "no-such-host.invalid"},
            "rank 0 can listen at MASTER_ADDR and MASTER_PORT. Found: no-such-host.invalid",
        ),
        (
            {"NNODES": "2", "RANK": "0", "MASTER_ADDR": "192.0.2.77"},
            "rank 0 can listen at MASTER_ADDR and MASTER_PORT. Found: 192.0.2.77",
        ),
        ({**FOUR, "RANK": "1", "RAY_ADDRESS": "auto"}, "starts a cluster of its own. Found: RAY_ADDRESS=auto"),
    ],
)
def test_a_wrong_environment_is_named(env: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        seat(**env)


def test_a_name_that_only_this_machine_takes_for_itself_is_refused(monkeypatch) -> None:
    """Debian writes 127.0.1.1 beside the host's name."""
    monkeypatch.setattr(socket, "create_server", lambda where: there)
    there = socket.socket()
    there.bind(("127.0.1.1", 0))
    with pytest.raises(InputError, match="reach rank 0. Found: node-a is 127.0.1.1 on this machine"):
        seat(NNODES="2", RANK="0", MASTER_ADDR="node-a")
    assert there.fileno() == -1


@pytest.mark.covers("U11")
def test_a_taken_port_is_named(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, value in {"NNODES": "1", "MASTER_PORT": str(port)}.items():
            monkeypatch.setenv(name, value)
        assert main.main(["cluster", "--config", "quickstart"]) == 2
    said = capsys.readouterr().err
    assert f"rank 0 can listen at MASTER_ADDR and MASTER_PORT. Found: 127.0.0.1:{port}: Address already in use" in said
    assert not (tmp_path / "runs").exists()


def test_a_wrong_setting_is_refused_on_every_node_before_anybody_waits(monkeypatch, capsys) -> None:
    for rank in ("0", "1"):
        for name, value in {**FOUR, "RANK": rank}.items():
            monkeypatch.setenv(name, value)
        assert main.main(["cluster", "--config", "quickstart", "game.attempts=-1"]) == 2
        assert "game.attempts is" in capsys.readouterr().err
    assert main.main(["cluster", "--config", "quickstart", "--dry-run"]) == 0
    monkeypatch.setenv("NODE_PORTS", "9-1")
    assert main.main(["cluster", "--config", "quickstart"]) == 2
    assert "NODE_PORTS is a range" in capsys.readouterr().err


def test_ports_come_from_the_span_that_is_given(monkeypatch) -> None:
    first = free_port()
    low = max(1024, first - 100)
    monkeypatch.setenv("NODE_PORTS", f"{low}-{low + 99}")
    with socket.create_server(("", 0)) as taken:
        given = ports.options(head=True)
        assert str(taken.getsockname()[1]) not in " ".join(given)
    numbers = [int(text) for option in given for text in option.partition("=")[2].split(",")]
    assert len(given) == len(ports.NAMED) + 2 and len(set(numbers)) == len(numbers) > 50
    assert set(numbers) <= set(range(low, low + 100))
    monkeypatch.setenv("NODE_PORTS", f"{low}-{low + 3}")
    with pytest.raises(InputError, match="at least 24 free ports"):
        ports.options(head=False)


LAUNCHER = """
import subprocess, sys, time
from actors.keeper import keep
mark = {"SSP_NODE": sys.argv[1], "PATH": "/usr/bin:/bin"}
# A shell, a child that carries the mark, and one that has lost it, as Ray's agents do.
child = subprocess.Popen(
    ["bash", "-c", "env -u SSP_NODE sleep 601 & sleep 600 & wait"], env=mark, start_new_session=True
)
keeper = keep(child.pid, f"SSP_NODE={sys.argv[1]}")
print(child.pid, flush=True)
time.sleep(600)
"""


def marked_and_not(shell: psutil.Process) -> list[psutil.Process]:
    """It and its children, once they run: of one that has just begun, Linux shows its parent's environment, or none."""
    children = shell.children()
    with suppress(psutil.Error):
        if sorted(MARK in child.environ() for child in children if child.environ()) == [False, True]:
            return [shell, *children]
    return []


@pytest.mark.covers("U9", "U10")
def test_the_keeper_ends_what_a_killed_launcher_started(tmp_path: Path) -> None:
    """Beside another process whose name Linux cuts off in the middle of a letter."""
    odd = tmp_path / ("é" * 8)
    odd.symlink_to("/bin/sleep")
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path)]
    with subprocess.Popen([odd, "600"]) as other:
        environment = {**os.environ, "PYTHONPATH": str(REPO)}
        launcher = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert launcher.stdout is not None
        shell = psutil.Process(int(launcher.stdout.readline()))
        family = until("a child with the mark, one without", lambda: marked_and_not(shell), 20.0)
        launcher.kill()
        launcher.wait()
        psutil.wait_procs(family, 20.0)
        other.kill()
    assert not any(process.is_running() for process in family)


def test_a_folder_too_deep_for_sockets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(deep))
    with pytest.raises(InputError, match="at most 41 bytes.*set RAY_TMPDIR to a shorter one"):
        raynode.RayNode(["--head"], 1.0)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "ray" / "token"))
    return tmp_path / "ray" / "token"


def test_the_token_is_made_once_and_kept_to_its_owner(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, other = cluster.NodeSeat(2, 0, "h", 1), cluster.NodeSeat(2, 1, "h", 1)
    cluster._require_token(other)
    assert not cluster._has_token() and not token.exists()
    cluster._require_token(head)
    made = token.read_text()
    cluster._require_token(head)
    assert cluster._has_token()
    assert len(made) == 64 and token.read_text() == made and token.stat().st_mode & 0o777 == 0o600
    token.write_text("")  # of one that died as it wrote; whoever made it first let others read it
    token.chmod(0o644)
    cluster._require_token(head)
    assert token.read_text() not in ("", made) and token.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(InputError, match="unset RAY_AUTH_MODE"):
        cluster._require_token(head)


def test_a_node_without_the_token_is_told_so_once_the_head_is_there(
    token: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        env = {"NNODES": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(head.getsockname()[1])}
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert main.main(["cluster", "--config", "quickstart"]) == 2
    assert f"every node has the head's token. Found: no token in {token}" in capsys.readouterr().err
