"""Names of other libraries that nobody documents: the installed version has them."""

from __future__ import annotations

import importlib
import os
from importlib.metadata import version
from pathlib import Path

import pytest


def test_deepspeed_compiles_what_is_on_this_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "DS_ACCELERATOR": "cpu"})
    assert version("deepspeed").startswith("0.19.")
    assert "deepspeed_shm_comm" in importlib.import_module("deepspeed.ops").__compatible_ops__
    shards = importlib.import_module("deepspeed.runtime.zero.partition_parameters")
    assert "ds_tensor" in Path(shards.__file__ or "").read_text(encoding="utf-8")
