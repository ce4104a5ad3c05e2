"""The browser of the board's tests: one a module. What needs it is nightly, but for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.board.chrome import Chrome, chrome


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chrome() as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) and item.name != "test_each_view_by_a_click[light]":
            item.add_marker(pytest.mark.nightly)
