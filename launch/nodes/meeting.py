"""What the nodes of a run tell each other in the store of Ray's head: what a node must be like, and
the exit code, which Ray tells nobody. Ranks are names of Ray's nodes, so that Ray knows which are
there; nobody reads or writes without the token."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.exceptions import AuthenticationError, RpcError

from launch.nodes.code import Print, check_same
from ssp.base.errors import InputError, SspError, hold

BEAT = 1.0
"""Seconds between two looks."""

PATIENCE = 10.0
"""Seconds in which Ray's head answers, and in which nodes leave once the run has ended."""

STARTING = 15.0
"""Seconds in which a head that listens may still refuse a node or not answer it."""

PRINT, END = "print", "end"


class Store:
    """The store of Ray's head at `address`. Everything in it raises Ray's own exceptions."""

    def __init__(self, address: str) -> None:
        self._gcs = GcsClient(address=address)

    def put(self, key: str, value: object) -> None:
        """Write a value."""
        text = json.dumps(value).encode()
        self._gcs.internal_kv_put(key.encode(), text, True, b"ssp", timeout=PATIENCE)

    def get(self, key: str) -> Any:
        """A value; None while there is none."""
        text = self._gcs.internal_kv_get(key.encode(), b"ssp", timeout=PATIENCE)
        return json.loads(text or b"null")

    def ranks(self) -> dict[int, str]:
        """Rank → host of the nodes that Ray holds for alive."""
        hosts = {}
        for node in self._gcs.get_all_node_info(timeout=PATIENCE).values():
            if node.state == node.ALIVE and node.node_name.isdecimal():
                hosts[int(node.node_name)] = node.node_manager_hostname
        return hosts


def gather(store: Store, nodes: int, print_: Print, seconds: float) -> None:
    """As the head, let nodes in and wait until every rank is there. SspError naming who is missing
    after `seconds`."""
    store.put(PRINT, print_)
    deadline = time.monotonic() + seconds
    while True:
        missing = sorted(set(range(nodes)) - store.ranks().keys())
        if not missing:
            return
        if time.monotonic() > deadline:
            ranks = f"rank {', '.join(map(str, missing))} of {nodes}"
            late = f"did not come within twice placement.call_timeout, {seconds:g} s"
            step = "see what was printed there, and start again"
            raise SspError(f"{ranks} {late}. Next: {step}")
        time.sleep(BEAT / 10)


def dismiss(store: Store, exit_code: int) -> None:
    """As the head, tell everybody that the run has ended, and wait until they have left, a few
    seconds at most."""
    deadline = time.monotonic() + PATIENCE
    with suppress(RpcError):  # where Ray's head has ended
        store.put(END, exit_code)
        while len(store.ranks()) > 1 and time.monotonic() < deadline:
            time.sleep(BEAT / 10)


def await_head(host: str, port: int, seconds: float, say: Callable[[str], None]) -> None:
    """Wait until somebody listens there: Ray itself waits in silence, and prints. SspError when
    nobody does within `seconds`."""
    deadline = time.monotonic() + seconds
    told = False
    while True:
        try:
            socket.create_connection((host, port), PATIENCE).close()
            return
        except OSError as error:
            why = error.strerror or str(error)
        if not told:
            told = True
            say(f"waiting for the head at {host}:{port} ({why})")
        if time.monotonic() > deadline:
            late = f"no head at {host}:{port} within twice placement.call_timeout, {seconds:g} s"
            step = "check that rank 0 runs, MASTER_ADDR, MASTER_PORT and the firewall"
            raise SspError(f"{late}: {why}. Next: {step}")
        time.sleep(BEAT)


def find_head(address: str, seconds: float) -> Store:
    """The store of a head that lets nodes in. SspError when it does not within `seconds`, or does
    not answer; InputError when it has another token. A head that is still starting may refuse
    everybody, or not answer: it is asked again for a while."""
    begun = time.monotonic()
    while True:
        starting = time.monotonic() < begun + min(seconds, STARTING)
        try:
            store = Store(address)
            if store.get(PRINT):
                return store
        except AuthenticationError as error:
            rule = "every node has the head's token"
            step = "copy the token's file from rank 0, which prints its path"
            if not starting:
                raise InputError(rule, f"{address} refuses this node's", step) from error
        except RpcError as error:
            if not starting:
                gone = f"the head at {address} is gone: {error}"
                raise SspError(f"{gone}. Next: see what it printed") from error
        if time.monotonic() > begun + seconds:
            raise SspError(f"the head at {address} lets no node in. Next: see what it printed")
        time.sleep(BEAT)


def check_in(store: Store, rank: int, print_: Print) -> None:
    """InputError unless this node is like the head, and no other node has its rank."""
    check_same(print_, store.get(PRINT))
    ranks = store.ranks()
    rule = "each node has a RANK of its own"
    step = "start this one with another RANK, or in half a minute if that node has just died"
    hold(rank not in ranks, rule, f"rank {rank} is on {ranks.get(rank)} already", step)


def stay(store: Store, check: Callable[[], None]) -> int:
    """Wait for the run's end and return rank 0's exit code; `check` is called each second. SspError
    when the head vanishes without goodbye."""
    exit_code = None
    while exit_code is None:
        time.sleep(BEAT)
        try:
            exit_code = store.get(END)
        except RpcError as error:
            gone = f"the head vanished without saying goodbye: {str(error).splitlines()[0]}"
            step = "see what rank 0 printed, and start all nodes again"
            resumed = "with resume=auto the run goes on from its checkpoint"
            raise SspError(f"{gone}. Next: {step}; {resumed}") from error
        if exit_code is None:
            check()
    return int(exit_code)
