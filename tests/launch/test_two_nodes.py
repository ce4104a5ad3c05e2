"""`ssp train` over two Ray nodes: the run of one node."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainruns import Cluster, Run, ledger_is_sound, run

from launch import doctor

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

HALF = "placement.cpus=0.3"
"""More than half of the first node's processors, above which Ray takes the other one."""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    """Two nodes on this machine."""
    folder = Path(tempfile.mkdtemp(prefix="ssp-ray-", dir="/tmp"))
    cluster = Cluster(folder, several=True)
    try:
        cluster.join(cpus=4)
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


def _digest(made: Run, capsys: pytest.CaptureFixture[str]) -> str:
    assert doctor.main(["--ledger", str(made.folder / "ledger.db"), "--digest"]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def _losses(made: Run) -> list[tuple[int, str, float, float]]:
    return [
        (row["step"], role, row["loss"], row["grad_norm"]) for role in ("proposer", "solver") for row in made.rows(role)
    ]


@pytest.mark.covers("RS-10")
def test_two_nodes_play_the_run_of_one(two_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with run(tmp_path / "one", "steps=3") as one:
        one.ends_well()
    with run(tmp_path / "two", "steps=3", HALF, env=two_nodes.env) as two:
        two.until("the first step", lambda: two.steps() >= 1)
        assert len(two_nodes.nodes("two")) == 2
        two.ends_well()
    assert _losses(two) == _losses(one) and len(_losses(one)) == 6
    assert _digest(two, capsys) == _digest(one, capsys)
    ledger_is_sound(two)
