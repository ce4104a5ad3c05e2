"""Scripted policies in every test of self-play; a test with others of its own puts them in their place."""

from __future__ import annotations

import fakes
import pytest


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)
