"""Imports that cost less: packages that are hidden for a while, and a collector that waits."""

from __future__ import annotations

import gc
import importlib.util
import sys
from importlib import metadata

import pytest

from ssp.base import imports
from ssp.base.imports import uncollected, without


def test_a_hidden_package_fails_to_import_and_comes_back() -> None:
    """One that is imported already stays."""
    sys.modules.pop("wave", None)
    with pytest.raises(RuntimeError, match="of the block"), without("wave", "sys"):
        assert importlib.util.find_spec("wave") is None and importlib.import_module("sys") is sys
        with pytest.raises(ImportError):
            importlib.import_module("wave")
        raise RuntimeError("of the block")
    assert importlib.import_module("wave").__name__ == "wave"


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_waits_and_is_then_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(RuntimeError), uncollected():
            assert not gc.isenabled()
            raise RuntimeError("of the block")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_packages_distributions_are_those_of_the_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another name than the package (PyYAML), of the same, and of none."""
    whole = metadata.packages_distributions()
    monkeypatch.setattr(imports, "_distributions", lambda: whole)
    with pytest.raises(RuntimeError), imports.unlisted():
        asked = metadata.packages_distributions()
        assert asked["yaml"] == whole["yaml"] == ["PyYAML"] and asked["numpy"] == whole["numpy"] == ["numpy"]
        assert asked.get("nowhere") is None and asked.keys() == whole.keys()
        raise RuntimeError("of the block")
    assert metadata.packages_distributions() is whole
