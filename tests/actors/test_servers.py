"""Which of Ray's servers a connection rests on."""

from __future__ import annotations

import psutil
import pytest

from actors import servers


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
