"""Published weights in files of the safetensors format, written by copying and read by mapping. A file under its own name is
whole (written aside and renamed); what was read outlives the file's name."""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base import shared
from ssp.base.errors import Fault, InputError, InvariantError, SspError
from ssp.record.manifest import check_files
from ssp.selfplay.transfer.parcel import Weights

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1"}
"""Names of the format, and numpy's."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def _created(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)


def write(path: Path, weights: Mapping[str, np.ndarray], create: Callable[[Path], int] = _created) -> int:
    """Write a file by way of `path` + `.part`, which `create` opens; its descriptor, to be closed. SspError without room."""
    aside = path.with_name(path.name + ".part")
    descriptor = create(aside)
    try:
        _fill(descriptor, path, weights)
        os.rename(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return descriptor


def _fill(descriptor: int, path: Path, weights: Mapping[str, np.ndarray]) -> None:
    header: dict[str, Any] = {}
    at = 0
    for name, array in weights.items():
        if array.dtype.str not in _NAMES:
            raise InvariantError(f"{name} is {array.dtype}, which a weights file cannot hold")
        end = at + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype.str], "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)  # tensors begin on a cache line, less the eight bytes in front
    try:
        os.posix_fallocate(descriptor, 0, 8 + len(text) + at)
    except OSError as error:
        said = f"{path.parent} holds the published weights ({at / 1e6:.0f} MB): {error}"
        raise SspError(f"{said}. Next: make room, or choose another transfer.kind") from error
    parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in weights.values()]
    with os.fdopen(os.dup(descriptor), "wb", buffering=0) as file:
        for data in [memoryview(len(text).to_bytes(8, "little") + text), *parts]:
            while len(data):  # an unbuffered write may take a part only (2 GiB on Linux)
                data = data[file.write(data) :]


def read(path: Path) -> Weights:
    """The tensors of the file, or of all such files in a model folder, as read-only views of their mapped pages. Fault
    `payload_lost` when one is gone, torn or not as the folder's record has it, or there is none."""
    if path.is_dir():
        try:
            check_files(path)
        except InputError as error:
            raise Fault("payload_lost", str(error)) from error
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise Fault("payload_lost", f"{path} holds no *.safetensors")
        return {name: array for file in files for name, array in read(file).items()}
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        begin = 8 + int.from_bytes(mapped[:8], "little")
        header = json.loads(mapped[8:begin])
        header.pop("__metadata__", None)
        weights = {}
        for name, entry in header.items():
            at, count = begin + entry["data_offsets"][0], int(np.prod(entry["shape"], dtype=np.int64))
            weights[name] = np.frombuffer(mapped, DTYPES[entry["dtype"]], count, at).reshape(entry["shape"])
        return weights
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fault("payload_lost", f"{path} is no whole file of weights: {error}") from error


class Shelf:
    """The newest `keep` publications in `folder`, files `<stem><serial>.safetensors`."""

    def __init__(self, folder: Path, stem: str, keep: int, create: Callable[[Path], int] = _created) -> None:
        self._folder, self._stem, self._keep, self._create = folder, stem, keep, create
        self._files: deque[tuple[Path, int]] = deque()

    def put(self, serial: int, weights: Mapping[str, np.ndarray]) -> Path:
        """Write one publication, remove the oldest."""
        path = self._folder / f"{self._stem}{serial}.safetensors"
        self._files.append((path, write(path, weights, self._create)))
        self.close(self._keep)
        return path

    def close(self, most: int = 0) -> None:
        """Remove all but the newest `most`."""
        while len(self._files) > most:
            path, descriptor = self._files.popleft()
            path.unlink(missing_ok=True)
            os.close(descriptor)


def memory_shelf(run: str, role: str, keep: int, folder: Path = shared.SHARED_MEMORY) -> Shelf:
    """A shelf in /dev/shm, whose files this process locks; what dead processes left there goes."""
    shared.sweep(folder)
    return Shelf(folder, f"{shared.PREFIX}{run}-{role}-{os.getpid()}-", keep, shared.create)


def disk_shelf(run_folder: Path, role: str, keep: int) -> Shelf:
    """A shelf `weights/<role>/` in the run folder, whose lock says that it is ours: it begins empty."""
    folder = run_folder / "weights" / role
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return Shelf(folder, f"{os.getpid()}-", keep)
