"""Outbox to inbox: every kind brings the same bits, what is torn or too old is a fault."""

from __future__ import annotations

import json
import os
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from safetensors.numpy import save_file

from ssp.base.errors import Fault, InvariantError
from ssp.config.role import RoleConfig
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.record.manifest import seal
from ssp.selfplay.transfer import loader
from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.loader import Inbox, Loader
from ssp.selfplay.transfer.parcel import Parcel, Place
from ssp.selfplay.transfer.publisher import Publisher
from ssp.selfplay.versions import choose

PATIENCE = 60.0


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("a", (9, 4)), ("b", (5,)))}


def outbox(kind: str, last: int = 0) -> Publisher:
    """A learner that publishes so; `last`: seed of the weights that it has now."""
    made = Publisher()
    made.publish_by(kind, 2)
    made.exported = lambda: weights(last)  # type: ignore[method-assign]
    return made


def same(found: dict[str, Any], sent: dict[str, np.ndarray]) -> bool:
    return {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in sent.items()}


def joined(out: Publisher, boxes: list[Inbox], seconds: float = PATIENCE) -> None:
    """Form a group in this process, a thread a member."""
    call = Call("127.0.0.1", out.listen("127.0.0.1"), 1 + len(boxes), False, seconds)
    joins = [lambda box=box, rank=rank: box.join(call, rank, "127.0.0.1") for rank, box in enumerate(boxes, 1)]
    together(lambda: out.join(call, "127.0.0.1"), *joins)


def together(*calls: Any) -> list[Any]:
    """Run at once; results, or what was raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.exception(PATIENCE) or future.result() for future in futures]


def folder(path: Path) -> Parcel:
    """Weights in a model folder, as members of the league travel."""
    path.mkdir()
    for name, array in weights().items():
        save_file({name: array}, path / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in weights()}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return Parcel("folder", -1, 0, path=str(path))


@pytest.mark.parametrize("kind", ["object_store", "broadcast"])
def test_every_kind_brings_the_same_bits(kind: str) -> None:
    out, boxes = outbox(kind), [Inbox("solver", 2) for _ in range(2)]
    if kind == "broadcast":
        joined(out, boxes)
    for version, seed in ((5, 0), (9, 1)):
        parcel, figures = out.pack(weights(seed))
        travelled = pickle.loads(pickle.dumps(parcel))
        assert figures["serial"] == seed and figures["sync/bytes"] == 4 * 41
        assert 0 < figures["time/sync_pack"] < PATIENCE
        if kind == "broadcast":
            took = together(*[partial(box.arrive, version, travelled) for box in boxes], partial(out.send, seed))
            assert all(isinstance(seconds, float) and 0 < seconds < PATIENCE for seconds in took), took
            assert len(pickle.dumps(parcel)) < 2000  # by reference: a parcel is small
        for box in boxes:
            assert same(box.open(version, travelled), weights(seed))
    for box in (out, *boxes):
        box.leave()


def test_a_folder_is_read_whole_and_as_its_record_has_it(tmp_path: Path) -> None:
    box, parcel = Inbox("solver", 2), folder(tmp_path / "v1")
    assert same(box.open(7, parcel), weights())
    seal(tmp_path / "v1", {})
    save_file({"b": weights(1)["b"]}, tmp_path / "v1" / "b.safetensors")
    with pytest.raises(Fault, match="payload_lost.*sha256"):
        box.open(7, parcel)


@pytest.mark.parametrize("left", [0, 6, 40, 80])
def test_a_torn_or_missing_file_is_a_lost_payload(tmp_path: Path, left: int) -> None:
    parcel = folder(tmp_path / "v1")
    os.truncate(tmp_path / "v1" / "b.safetensors", left)
    with pytest.raises(Fault, match="payload_lost"):
        Inbox("solver", 2).open(7, parcel)
    (tmp_path / "none").mkdir()
    with pytest.raises(Fault, match="payload_lost.*no weights"):
        Inbox("solver", 2).open(7, Parcel("folder", -1, 0, path=str(tmp_path / "none")))


def test_a_broadcast_that_was_missed_is_a_fault_and_may_be_had_again() -> None:
    out, box = outbox("broadcast", last=2), Inbox("solver", 2)
    parcels = [out.pack(weights(serial))[0] for serial in range(3)]
    with pytest.raises(Fault, match="weights_missed"):
        box.open(4, parcels[2])
    for serial in (1, 2):
        again, _ = out.again(serial)
        assert again.kind == "object_store" and np.array_equal(box.open(4, again)["a"], weights(serial)["a"])
    with pytest.raises(Fault, match="weights_gone"):
        out.again(0)
    with pytest.raises(Fault, match="broadcast_failed: this process is in no group"):
        box.arrive(4, parcels[2])


def test_a_member_that_does_not_come_ends_the_wait() -> None:
    out, box = outbox("broadcast"), Inbox("solver", 2)
    call = Call("127.0.0.1", out.listen("127.0.0.1"), 3, False, 1.0)
    found = together(lambda: out.join(call, "127.0.0.1"), lambda: box.join(call, 1, "127.0.0.1"))
    assert all(isinstance(error, Fault) and error.cause == "broadcast_failed" for error in found), found


def test_a_member_that_leaves_ends_the_send_and_a_new_group_stands() -> None:
    out, boxes = outbox("broadcast"), [Inbox("solver", 2) for _ in range(2)]
    joined(out, boxes, 3.0)
    parcel, _ = out.pack(weights())
    boxes[1].leave()
    found = together(lambda: out.send(0), lambda: boxes[0].arrive(1, parcel))
    assert any(isinstance(error, Fault) and error.cause == "broadcast_failed" for error in found), found
    out.leave()
    boxes[0].leave()
    joined(out, boxes)
    together(lambda: out.send(0), *[lambda box=box: box.arrive(1, parcel) for box in boxes])
    assert all(np.array_equal(box.open(1, parcel)["b"], weights()["b"]) for box in boxes)
    out.leave()


def test_a_member_closes_each_group_that_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(loader, "Group", lambda call, rank, host: Mock(close=lambda: closed.append(rank)))
    box = Inbox("solver", 2)
    for rank in (1, 2):
        box.join(Call("127.0.0.1", 0, 2, False, PATIENCE), rank, "127.0.0.1")
    assert closed == [1]
    box.leave()
    assert closed == [1, 2]


# the choice

NEAR = Place("10.0.0.1")


@pytest.mark.parametrize(
    ("learner", "engines", "kind"),
    [
        (NEAR, [NEAR, Place("10.0.0.2")], "object_store"),
        (Place("h", "gpu-0"), [Place("h", "gpu-0")], "object_store"),
        (Place("h", "gpu-0"), [Place("h", "gpu-1"), Place("i", "gpu-2")], "broadcast"),
        (Place("h", "gpu-0"), [Place("h", "gpu-1"), Place("i", "gpu-1")], "object_store"),
        (Place("h", "gpu-0"), [NEAR], "object_store"),
    ],
)
def test_auto_broadcasts_between_gpus_of_their_own(learner: Place, engines: list[Place], kind: str) -> None:
    chosen, why = choose("auto", learner, engines)
    assert chosen == kind and why


def test_a_version_is_loaded_once() -> None:
    cfg, engine = Config(), ScriptedEngine(lambda ids, seed, turn: [])
    cfg.blocks["solver"] = RoleConfig()
    made = Loader(cfg, "solver", engine)
    parcels = [Parcel("object_store", seed, 0, payload=weights(seed)) for seed in (0, 1)]
    seconds = made.fit(1, parcels[0])
    assert set(seconds) == {"sync_transfer", "sync_load"} and all(0 <= found < PATIENCE for found in seconds.values())
    assert made.fit(1, parcels[0]) == {}
    made.fit(2, parcels[1])
    assert engine.version == made.version == 2


def test_an_engine_is_placed_on_a_gpu_where_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnDevice(ScriptedEngine):
        def load_device(self, tensors: dict[str, Any], version: int, keep: bool = False) -> None: ...

    def script(ids: list[int], seed: int, turn: int) -> list[int]:
        return []

    cfg = Config()
    cfg.blocks["solver"] = RoleConfig()
    place = Loader(cfg, "solver", OnDevice(script)).place()
    assert place.gpu == "" and place == Publisher().place()
    monkeypatch.setattr(loader, "here", lambda host, gpu: gpu)
    cfg.placement.engine_gpus = 1
    assert [Loader(cfg, "solver", kind(script)).place() for kind in (OnDevice, ScriptedEngine)] == [True, False]


def test_what_is_no_array_is_named() -> None:
    with pytest.raises(InvariantError, match="numpy arrays: b is none"):
        outbox("object_store").pack({**weights(), "b": [1.0]})  # type: ignore[dict-item]


def test_who_listens_anew_or_leaves_is_met_at_the_old_port_no_more() -> None:
    out = outbox("broadcast")
    held: list[Any] = []
    for leave in (lambda: None, out.leave, partial(out.publish_by, "broadcast", 2)):
        held += [out.listen("127.0.0.1"), out._socket]
        leave()
    for port in held[::2]:
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), 5.0).close()
    for closed in held[1::2]:
        assert closed.fileno() == -1
