"""A learner's side of publications, as a base class of its worker.

Owns the outbox. Promises a parcel and its serial for every export of weights. Refuses to know what is trained.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssp.base.errors import Fault, InvariantError
from ssp.record.manifest import RECORD
from ssp.selfplay.transfer import flat
from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.outbox import Outbox
from ssp.selfplay.transfer.parcel import Parcel, Place, Plan, Weights, here


class Publisher:
    """What a worker inherits that publishes. `publish_by` comes before the first export."""

    _outbox: Outbox | None = None

    def exported(self) -> Weights:
        """The weights as they are now."""
        raise NotImplementedError

    def export(self, folder: str, meta: dict[str, Any]) -> None:
        """Write the weights alone into a folder, aside and renamed, with `meta` as its `ssp.json`."""
        aside = Path(f"{folder}.tmp-{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        path = aside / "model.safetensors"
        descriptor = os.open(path.with_name(path.name + flat.ASIDE), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        try:
            flat.write(path, self.exported(), descriptor)
        finally:
            os.close(descriptor)
        (aside / RECORD).write_text(json.dumps(meta), encoding="utf-8")
        os.rename(aside, folder)

    def nbytes(self) -> int:
        """About how many bytes `exported` has, before anything is exported."""
        return 0

    def on_gpu(self) -> bool:
        """Whether the weights are on a GPU."""
        return False

    def host(self) -> str:
        """The address at which the other processes of the run reach this one."""
        return "127.0.0.1"

    def place(self) -> Place:
        """Where this process is, and how large its weights are."""
        return here(self.host(), self.on_gpu(), self.nbytes())

    def publish_by(self, plan: Plan) -> None:
        """Publish by `plan` from now on; what was shared before is given up."""
        self.close()
        self._outbox = Outbox(plan)

    def weights(self) -> tuple[Parcel, dict[str, float]]:
        """A publication of the current weights, and its figures."""
        return self._publish({})

    def again(self, serial: int) -> tuple[Parcel, dict[str, float]]:
        """An earlier publication once more, by the object store. Fault `weights_gone` when this process has it no more."""
        return self._again(serial, self.exported)

    def _again(self, serial: int, newest: Callable[[], Weights]) -> tuple[Parcel, dict[str, float]]:
        if self._outbox is None:
            raise Fault("weights_gone", "the learner's process is a new one, which has published nothing")
        return self._outbox.again(serial, newest)

    def listen(self, host: str) -> int:
        """Open the port of a new group of broadcasts at `host`."""
        return self._box().listen(host)

    def join(self, call: Call, host: str) -> None:
        """Wait until the group's members are there. Fault `broadcast_failed`."""
        self._box().join(call, host)

    def send(self, serial: int) -> float:
        """Broadcast a publication; seconds. Fault `broadcast_failed`."""
        return self._box().send(serial)

    def leave(self) -> None:
        """End the group."""
        self._box().leave()

    def close(self) -> None:
        """Give up what was shared: at the run's end."""
        if self._outbox is not None:
            self._outbox.close()
        self._outbox = None

    def _box(self) -> Outbox:
        if self._outbox is None:
            raise InvariantError("a learner is told how to publish before it does")
        return self._outbox

    def _publish(self, stats: dict[str, float]) -> tuple[Parcel, dict[str, Any]]:
        """A publication after an update with these figures."""
        parcel, figures = self._box().pack(self.exported())
        return parcel, {**stats, **figures}
