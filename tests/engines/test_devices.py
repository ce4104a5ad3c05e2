"""The embedded engine on another device than the host: the same text there, one wait a token, and what a device is called."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
from elsewhere import NAME, Device, there
from suite_models import STOP, arrays, network

from ssp.base import devices
from ssp.base.errors import InputError
from ssp.engines import Generation, Sampling, StopWords
from ssp.engines.torch_engine import TorchEngine
from ssp.selfplay.settings import load

PROMPTS = [[10, 11] * 80, [12] * 9, [12] * 9, [13], [14, 15]]
WORDS = StopWords(["ab"], lambda ids: "".join(chr(id) for id in ids))


def talk(name: str, device: str, seen: Device | None = None) -> tuple[list[list[Generation]], list[int]]:
    """Three turns of some slots, the cache grown and a switch of weights between them, and the waits of each turn."""
    net, other = network(name), network(name, 1)
    engine = TorchEngine(net.config.to_dict(), device=device)
    engine.load(arrays(net), 1)
    found, waits = [], []
    for sampling in (Sampling(0.7, 12, (STOP,)), Sampling(0.0, 30), Sampling(1.0, 40, (STOP,), WORDS)):
        before = seen.waits if seen else 0
        slots = engine.open([1, 2, 3, 4, 5])
        found.append(engine.step(slots, [[*prompt] for prompt in PROMPTS], sampling))
        found.append(engine.step(slots[:3], [[20, 21], [22], []], Sampling(sampling.temperature, 5)))
        waits.append((seen.waits if seen else 0) - before)
        engine.load(arrays(other), 2)
    return found, waits


@pytest.mark.parametrize("name", ["llama-own", "qwen2-tied", "qwen3-tied"])
def test_the_same_text_elsewhere_and_a_wait_a_token(name: str) -> None:
    """Not the same bits: pieces attend side by side there, padded to the longest."""
    here, _ = talk(name, "cpu")
    with there() as device:
        away, (_, plain, _) = talk(name, NAME, device)
    for one, other in zip(chain(*here), chain(*away), strict=True):
        assert replace(other, logprobs=one.logprobs) == one
        assert other.logprobs == pytest.approx(one.logprobs, abs=1e-5)
    # Of the turn in which all rows end together: a token each, what they said, and where the longest row was.
    assert plain <= 30 + 5 + 2 * 5


def test_a_device_is_found_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.find("auto") == devices.find("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match=r"engine.device=cuda needs a GPU .* engine.device=auto"):
        TorchEngine(network("qwen2-tied").config.to_dict(), device="cuda")
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "is_available", lambda: True)
        assert devices.find("auto") == devices.find("cuda") == torch.device("cuda")
        assert devices.find("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("flags", "device", "asked", "found"),
    [
        ("avx2 avx512_bf16", "auto", "auto", "bfloat16"),
        ("avx2 avx512f", "auto", "auto", "float32"),  # where products in bfloat16 are fifty times as slow
        ("avx2", "cuda", "auto", "bfloat16"),
        ("avx2", "cpu", "bfloat16", "bfloat16"),
        ("avx512_bf16", "cpu", "float32", "float32"),
    ],
)
def test_auto_is_the_type_that_the_processor_multiplies(
    flags: str, device: str, asked: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "CPU", tmp_path / "cpuinfo")
    assert devices.dtype("auto", "cpu") == "float32"  # no such file
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
    typed = [f"defaults.engine.dtype={asked}", f"defaults.engine.device={device}"]
    cfg = load("quickstart", typed)
    assert {cfg.solver.engine.dtype, cfg.proposer.learner.dtype} == {found}
