"""Scripted policies in every test of a league's runs."""

from __future__ import annotations

import pytest

from tests.selfplay import fakes


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)
