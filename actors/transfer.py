"""Ray's part of weight transfer: where a process is, and the thread in which a player takes weights while it plays."""

from __future__ import annotations

from typing import Any

import ray

from ssp.capacity.memory import threads

TRANSFER = {"transfer": 1}
"""The concurrency group of a player beside the one of `play`: one thread."""


class Hosted:
    """Mix-in before a worker that meets others over the network."""

    def host(self) -> str:
        """The address at which the other processes of the cluster reach this one."""
        return str(ray.util.get_node_ip_address())


class Receiving(Hosted):
    """Mix-in before a player: its methods of transfer run in a thread of their own."""

    _threads: int

    def play(self, *args: Any) -> Any:
        """See `ssp.selfplay.workers.player.Player.play`."""
        threads.use(self._threads)  # with OpenMP the number belongs to the thread, which is not the constructor's
        return super().play(*args)  # type: ignore[misc]

    @ray.method(concurrency_group="transfer")
    def refresh(self, *args: Any) -> Any:
        """See `Player.refresh`."""
        return super().refresh(*args)  # type: ignore[misc]

    @ray.method(concurrency_group="transfer")
    def join(self, *args: Any) -> Any:
        """See `Player.join`."""
        return super().join(*args)  # type: ignore[misc]

    @ray.method(concurrency_group="transfer")
    def receive(self, *args: Any) -> Any:
        """See `Player.receive`."""
        return super().receive(*args)  # type: ignore[misc]

    @ray.method(concurrency_group="transfer")
    def leave(self) -> Any:
        """See `Player.leave`."""
        return super().leave()  # type: ignore[misc]
