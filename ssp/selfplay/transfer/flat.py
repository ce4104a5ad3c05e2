"""Weights in one flat file of the safetensors format, written by copying and read by mapping.

Owns the layout: eight bytes of header length, a JSON header, the tensors one after the other. Promises that a file under
its own name is whole (it is written aside and renamed), that reading copies nothing, and that what was read outlives
the file's name. Refuses dtypes that numpy does not have.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.errors import Fault, InputError, InvariantError, SspError
from ssp.record.manifest import check_files
from ssp.selfplay.transfer.parcel import Weights

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1"}
"""Names of the format, and numpy's."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ASIDE = ".part"
"""Ending of a file that is being written."""


def write(path: Path, weights: Mapping[str, np.ndarray], descriptor: int) -> None:
    """Fill the open, empty file `descriptor`, which lies at `path` + `.part`, and give it its name.

    SspError without room for it.
    """
    header: dict[str, Any] = {}
    at = 0
    for name, array in weights.items():
        if array.dtype.str not in _NAMES:
            raise InvariantError(f"{name} is {array.dtype}, which a weights file cannot hold")
        header[name] = {
            "dtype": _NAMES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)  # tensors begin on a cache line, less the eight bytes in front
    try:
        os.posix_fallocate(descriptor, 0, 8 + len(text) + at)
    except OSError as error:
        free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
        raise SspError(
            f"{path.parent} holds the published weights ({at / 1e6:.0f} MB, {free / 1e6:.0f} MB are free): {error}. "
            "Next: make room, or choose another transfer.kind"
        ) from error
    with os.fdopen(os.dup(descriptor), "wb", buffering=0) as file:
        _all(file, memoryview(len(text).to_bytes(8, "little") + text))
        for array in weights.values():
            _all(file, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    os.rename(path.with_name(path.name + ASIDE), path)


def _all(file: Any, data: memoryview) -> None:
    """An unbuffered write may take a part only (2 GiB on Linux)."""
    while len(data):
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
    except (OSError, ValueError) as error:
        raise Fault("payload_lost", f"{path}: {error}") from error
    try:
        begin = 8 + int.from_bytes(mapped[:8], "little")
        header = json.loads(mapped[8:begin])
        header.pop("__metadata__", None)
        return {
            name: np.frombuffer(
                mapped,
                DTYPES[entry["dtype"]],
                offset=begin + entry["data_offsets"][0],
                count=int(np.prod(entry["shape"], dtype=np.int64)),
            ).reshape(entry["shape"])
            for name, entry in header.items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise Fault("payload_lost", f"{path} is no whole file of weights: {error}") from error
