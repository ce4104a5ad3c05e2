"""Weights out of a learner and into an engine: the same bits arrive, what is torn or gone is a fault."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ssp.base.errors import Fault, InvariantError
from ssp.config.role import RoleConfig
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.record.manifest import seal
from ssp.selfplay.transfer.loader import Loader, opened
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.transfer.publisher import Publisher

PATIENCE = 60.0


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("a", (9, 4)), ("b", (5,)))}


def outbox(last: int = 0) -> Publisher:
    """A learner; `last`: seed of the weights that it has now."""
    made = Publisher()
    made.exported = lambda: weights(last)  # type: ignore[method-assign]
    return made


def same(arrived: dict[str, np.ndarray], sent: dict[str, np.ndarray]) -> bool:
    return {name: array.tobytes() for name, array in arrived.items()} == {n: a.tobytes() for n, a in sent.items()}


def folder(path: Path) -> Parcel:
    """Weights in a model folder, as members of the league travel."""
    path.mkdir()
    for name, array in weights().items():
        save_file({name: array}, path / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in weights()}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return Parcel(path=str(path))


def test_the_same_bits_arrive() -> None:
    out = outbox()
    for seed in (0, 1):
        parcel, figures = out.pack(weights(seed))
        assert figures["serial"] == seed and figures["sync/bytes"] == 4 * 41
        assert 0 < figures["time/sync_pack"] < PATIENCE
        assert same(opened(pickle.loads(pickle.dumps(parcel))), weights(seed))


def test_a_folder_is_read_whole_and_as_its_record_has_it(tmp_path: Path) -> None:
    parcel = folder(tmp_path / "v1")
    assert same(opened(parcel), weights())
    seal(tmp_path / "v1", {})
    save_file({"b": weights(1)["b"]}, tmp_path / "v1" / "b.safetensors")
    with pytest.raises(Fault, match="payload_lost.*sha256"):
        opened(parcel)


@pytest.mark.parametrize("left", [0, 6, 40, 80])
def test_a_torn_or_missing_file_is_a_lost_payload(tmp_path: Path, left: int) -> None:
    parcel = folder(tmp_path / "v1")
    os.truncate(tmp_path / "v1" / "b.safetensors", left)
    with pytest.raises(Fault, match="payload_lost"):
        opened(parcel)
    (tmp_path / "none").mkdir()
    with pytest.raises(Fault, match="payload_lost.*no weights"):
        opened(Parcel(path=str(tmp_path / "none")))


def test_the_last_publication_may_be_had_again_and_no_other() -> None:
    out = outbox(last=2)
    with pytest.raises(Fault, match="weights_gone"):
        out.again(0)
    for seed in range(3):
        out.pack(weights(seed))
    again, figures = out.again(2)
    assert same(opened(again), weights(2)) and figures == {"sync/bytes": 4 * 41}
    with pytest.raises(Fault, match="weights_gone"):
        out.again(1)


def test_a_version_is_loaded_once() -> None:
    cfg, engine = Config(), ScriptedEngine(lambda ids, seed, turn: [])
    cfg.blocks["solver"] = RoleConfig()
    made = Loader(cfg, "solver", engine)
    parcels = [Parcel(weights(seed)) for seed in (0, 1)]
    seconds = made.fit(1, parcels[0])
    assert set(seconds) == {"sync_transfer", "sync_load"} and all(0 <= took < PATIENCE for took in seconds.values())
    assert made.fit(1, parcels[0]) == {}
    made.fit(2, parcels[1])
    assert engine.version == made.version == 2


def test_what_is_no_array_is_named() -> None:
    with pytest.raises(InvariantError, match="numpy arrays: b is none"):
        outbox().pack({**weights(), "b": [1.0]})  # type: ignore[dict-item]
