"""The browser of the board's tests: one a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.board.chrome import Chrome, chrome


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chrome() as made:
        yield made
