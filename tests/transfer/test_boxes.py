"""Outbox to inbox: every kind brings the same bits, a difference is named, what is too old is gone."""

from __future__ import annotations

import pickle
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssp.base.errors import Fault, InputError, InvariantError
from ssp.config.role import RoleConfig
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.selfplay.transfer import files, loader
from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.loader import Inbox, Loader
from ssp.selfplay.transfer.parcel import Parcel, Place, Plan, WeightsDiffer, check_arrived, digests
from ssp.selfplay.transfer.publisher import Publisher
from ssp.selfplay.versions import choose

PATIENCE = 60.0


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("a", (9, 4)), ("b", (5,)))}


@pytest.fixture(autouse=True)
def _shelves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = files.memory_shelf
    monkeypatch.setattr(files, "memory_shelf", lambda run, role, keep: made(run, role, keep, tmp_path))


def outbox(tmp_path: Path, kind: str, verify: bool = False, last: int = 0) -> Publisher:
    """A learner that publishes so; `last`: seed of the weights that it has now."""
    made = Publisher()
    made.publish_by(Plan(kind, "run-1", "solver", str(tmp_path), 2, verify))
    made.exported = lambda: weights(last)  # type: ignore[method-assign]
    return made


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


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("kind", ["object_store", "shm", "disk", "broadcast"])
def test_every_kind_brings_the_same_bits(tmp_path: Path, kind: str, verify: bool) -> None:
    out, boxes = outbox(tmp_path, kind, verify), [Inbox("solver", 2) for _ in range(2)]
    if kind == "broadcast":
        joined(out, boxes)
    for version, seed in ((5, 0), (9, 1)):
        parcel, figures = out.pack(weights(seed))
        travelled = pickle.loads(pickle.dumps(parcel))
        assert (
            figures["serial"] == seed and figures["sync/bytes"] == 4 * 41 and 0 < figures["time/sync_pack"] < PATIENCE
        )
        if kind == "broadcast":
            took = together(*[partial(box.arrive, version, travelled) for box in boxes], partial(out.send, seed))
            assert all(isinstance(seconds, float) and 0 < seconds < PATIENCE for seconds in took), took
        if kind != "object_store":
            assert len(pickle.dumps(parcel)) < 2000  # by reference: a parcel is small
        for box in boxes:
            found = box.open(version, travelled)
            assert {name: array.tobytes() for name, array in found.items()} == {
                name: array.tobytes() for name, array in weights(seed).items()
            }
    out.close()
    for box in boxes:
        box.leave()


@pytest.mark.parametrize("kind", ["shm", "disk"])
def test_a_changed_byte_is_named_by_role_version_and_tensor(tmp_path: Path, kind: str) -> None:
    parcel, _ = outbox(tmp_path, kind, verify=True).pack(weights())
    raw = bytearray(Path(parcel.path).read_bytes())
    raw[-1] ^= 1
    Path(parcel.path).write_bytes(raw)
    with pytest.raises(WeightsDiffer, match=r"solver version 7 \(\w+\): b did not arrive"):
        Inbox("solver", 2).open(7, parcel)


def test_digests_see_dtype_shape_and_names() -> None:
    base = {"w": np.zeros(4, np.float32)}
    for other in ({"w": np.zeros((2, 2), np.float32)}, {"w": np.zeros(4, np.int32)}, {"v": np.zeros(4, np.float32)}):
        with pytest.raises(WeightsDiffer):
            check_arrived(digests(base), other, "x")
    check_arrived(digests(base), {"w": np.zeros(8, np.float32)[::2]}, "x")


def test_a_broadcast_that_was_missed_is_a_fault_and_may_be_had_again(tmp_path: Path) -> None:
    out, box = outbox(tmp_path, "broadcast", last=2), Inbox("solver", 2)
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


def test_a_member_that_does_not_come_ends_the_wait(tmp_path: Path) -> None:
    out, box = outbox(tmp_path, "broadcast"), Inbox("solver", 2)
    call = Call("127.0.0.1", out.listen("127.0.0.1"), 3, False, 1.0)
    found = together(lambda: out.join(call, "127.0.0.1"), lambda: box.join(call, 1, "127.0.0.1"))
    assert all(isinstance(error, Fault) and error.cause == "broadcast_failed" for error in found), found


def test_a_member_that_leaves_ends_the_send_and_a_new_group_stands(tmp_path: Path) -> None:
    out, boxes = outbox(tmp_path, "broadcast"), [Inbox("solver", 2) for _ in range(2)]
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
    out.close()


# the choice

NEAR, FAR = Place("m1", "10.0.0.1"), Place("m2", "10.0.0.2")


ROOM = 1000


def big(place: Place, nbytes: int = ROOM + 1) -> Place:
    return Place(place.memory, place.host, place.gpu, nbytes)


@pytest.mark.parametrize(
    ("learner", "engines", "kind"),
    [
        (big(NEAR, ROOM), [NEAR, NEAR], "object_store"),
        (big(NEAR), [NEAR, NEAR], "shm"),
        (big(NEAR), [NEAR, FAR], "object_store"),
        (Place("m1", "h", "gpu-0"), [Place("m1", "h", "gpu-0")], "object_store"),
        (Place("m1", "h", "gpu-0"), [Place("m1", "h", "gpu-1"), Place("m2", "i", "gpu-2")], "broadcast"),
        (Place("m1", "h", "gpu-0"), [Place("m1", "h", "gpu-1"), Place("m2", "i", "gpu-1")], "object_store"),
        (Place("m1", "h", "gpu-0"), [NEAR], "object_store"),
    ],
)
def test_auto_goes_by_place_and_size(learner: Place, engines: list[Place], kind: str) -> None:
    chosen, why = choose("auto", "solver", learner, engines, ROOM)
    assert chosen == kind and why


def test_a_kind_that_cannot_work_is_refused() -> None:
    with pytest.raises(InputError) as found:
        choose("shm", "solver", NEAR, [NEAR, FAR], ROOM)
    assert "10.0.0.1, 10.0.0.2" in str(found.value) and "transfer.kind=auto" in str(found.value)


def test_a_version_is_loaded_once() -> None:
    cfg, engine = Config(), ScriptedEngine(lambda ids, seed, turn: [])
    cfg.solver, cfg.transfer.verify = RoleConfig(), True
    made = Loader(cfg, "solver", engine)
    parcels = [
        Parcel("object_store", seed, 0, payload=weights(seed), digests=digests(weights(seed))) for seed in (0, 1)
    ]
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
    cfg.solver = RoleConfig()
    place = Loader(cfg, "solver", OnDevice(script)).place()
    assert (place.gpu, place.nbytes) == ("", 0) and place == Publisher().place()
    monkeypatch.setattr(loader, "here", lambda host, gpu: gpu)
    cfg.placement.engine_gpus = 1
    assert [Loader(cfg, "solver", kind(script)).place() for kind in (OnDevice, ScriptedEngine)] == [True, False]


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match="numpy arrays: b is none"):
        outbox(tmp_path, "object_store").pack({**weights(), "b": [1.0]})  # type: ignore[dict-item]


def test_who_listens_anew_or_leaves_is_met_at_the_old_port_no_more(tmp_path: Path) -> None:
    out = outbox(tmp_path, "broadcast")
    held: list[Any] = []
    for leave in (lambda: None, out.leave, out.close):
        held += [out.listen("127.0.0.1"), out._socket]
        leave()
    for port in held[::2]:
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), 5.0).close()
    for closed in held[1::2]:
        assert closed.fileno() == -1
