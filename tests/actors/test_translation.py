"""What the crew and the cluster decide without a cluster: whose fault an exception is, and what may not start."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ObjectLostError, RayTaskError
from works import Work

from actors import cluster
from actors.crew import Patience, RayCrew
from ssp.base.errors import Fault, InputError
from ssp.config.cluster import RayConfig


def call(raised: Exception) -> Any:
    """Call an actor whose method raised `raised`, as Ray hands it over."""

    async def answer() -> None:
        raise RayTaskError("work", "traceback", raised).as_instanceof_cause()

    handle = SimpleNamespace(work=SimpleNamespace(remote=answer))
    return asyncio.run(RayCrew(Work, "worker", [handle], Patience(5.0, 5.0), print)[0].work())


@pytest.mark.parametrize("raised", [TimeoutError("a socket's"), ValueError("a bug"), Fault("engine_died")])
def test_an_exception_of_the_workers_own_code_is_raised_as_it_was(raised: Exception) -> None:
    with pytest.raises(type(raised)) as found:
        call(raised)
    assert found.value is raised


def test_a_lost_payload_is_a_fault() -> None:
    with pytest.raises(Fault, match="payload_lost"):
        call(ObjectLostError("00", "owner", "stack"))


@pytest.mark.parametrize(("address", "kept"), [(None, "0"), ("", "0"), ("10.0.0.1:6379", None)])
def test_only_a_cluster_that_is_named_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, address: str | None, kept: str | None
) -> None:
    monkeypatch.setattr(os, "environ", {} if address is None else {"RAY_ADDRESS": address})
    cluster.environment(RayConfig())
    assert os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") == kept


def test_too_few_cpus_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(InputError, match="set ray.cpus=2"):
        cluster.connect(RayConfig(cpus=1), needed_cpus=1.4)
