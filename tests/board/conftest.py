"""A played run for the board's tests, and a browser: one a module. What needs the browser is nightly, but for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.board.boarded import looked, played, serving
from tests.board.chrome import Chrome, chrome
from tests.selfplay import fakes


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> fakes.Stage:
    return played(tmp_path_factory.mktemp("board") / "run")


@pytest.fixture(scope="module")
def address(stage: fakes.Stage) -> Iterator[str]:
    with serving(looked(stage.folder)) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chrome() as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) and item.name != "test_each_view_by_a_click[light]":
            item.add_marker(pytest.mark.nightly)
