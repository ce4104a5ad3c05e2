"""`ssp.json`: what a model folder says of itself when this package wrote it.

Owns the file's name and the tag protocol in it (law 8). Promises that a broken record, or one of another protocol, is
refused by name. Refuses to know what else its writer put there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ssp.errors import InputError

RECORD = "ssp.json"


def read_record(folder: Path) -> dict[str, Any]:
    """The folder's record, {} when it has none. InputError when it is not a JSON object."""
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{RECORD} of a model must be JSON", f"{path}: {error}", "use another folder") from error
    if not isinstance(record, dict):
        raise InputError(f"{RECORD} of a model must be a JSON object", path, "use another folder")
    return record


def protocol_of(folder: Path, declared: str = "", version: int | None = None) -> str:
    """The id of the tag protocol that the folder's model speaks: from its record, else the id `declared`, since a model
    that was never trained here speaks whatever it is told to. `version`: of the declared one, where it is compared too.

    InputError when neither says so, when a record does not, or when the two differ.
    """
    record = read_record(folder)
    stored = str(record.get("protocol", ""))
    if not stored and ((folder / RECORD).exists() or not declared):
        raise InputError(
            "a model folder must name its tag protocol", f"{folder} has no protocol in {RECORD}", "set protocol=<id>"
        )
    if not stored or not declared:
        return stored or declared
    if stored != declared:
        raise InputError(
            f"the model must be of protocol {declared}",
            f"{folder} is of protocol {stored}",
            f"choose another policy, or set protocol={stored}",
        )
    found = record.get("protocol_version", version)
    if version is not None and found != version:
        raise InputError(
            f"the model must be of protocol {declared} (version {version})",
            f"{folder} is of version {found}",
            "choose another policy",
        )
    return stored
