"""What this package wrote says of itself: `ssp.json` of a model folder, `checkpoints/state.json` of
a run."""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssp.base.errors import InputError, hold, holding
from ssp.base.files import digest
from ssp.base.models import read_json

EXACT = "tokenization_exact.py"
"""The class that a tokenizer's configuration names, so that `AutoTokenizer` reads tokenizer.json as
it is."""
RECORD = "ssp.json"


def read_record(folder: Path) -> dict[str, Any]:
    """The folder's record, {} when it has none. InputError when it is not a JSON object."""
    path = folder / RECORD
    return dict(read_json(path)) if path.exists() else {}


def check_files(folder: Path, whole: bool = False) -> None:
    """InputError naming the file of `folder` that differs from the SHA-256 in its record; no
    record, no comparison. Without `whole` only the model's own files count: a copy may leave out
    what a learner keeps beside them (`*.pt`, sub-folders)."""
    digests = read_record(folder).get("sha256", {})
    hold(
        isinstance(digests, dict),
        f"{RECORD} must hold sha256 by file",
        folder / RECORD,
        "use another folder",
    )
    for name, expected in digests.items():
        if not whole and ("/" in name or name.endswith(".pt")):
            continue
        path = folder / name
        found = digest(path) if path.is_file() else "no such file"
        rule = f"files of a model folder are as they were written; sha256 of {path} is {expected}"
        hold(found == expected, rule, found, "copy the folder again, or use another one")


def seal(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the folder's `ssp.json`: `record`, and the SHA-256 of every file that is there.

    All get the mode that a new file has here: safetensors makes its own for their owner alone."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    digests = {str(path.relative_to(folder)): digest(path) for path in files}
    text = json.dumps({**record, "sha256": digests}, indent=1, sort_keys=True)
    told = folder / RECORD
    told.write_text(text + "\n", encoding="utf-8")
    for path in files:
        path.chmod(stat.S_IMODE(told.stat().st_mode))


def sound(folder: Path, what: str = EXACT) -> bool:
    """Whether `folder` is as `seal` left it, and its record names `what`: a file, or an entry."""
    try:
        check_files(folder, whole=True)
    except InputError:
        return False
    record = read_record(folder)
    return what in {**record, **record.get("sha256", {})}


def protocol_of(folder: Path, declared: str = "", version: int | None = None) -> str:
    """The id of the tag protocol that the folder's model speaks: from its record, else the id
    `declared`, since a model that was never trained here (no record, or an empty id in it) speaks
    whatever it is told to. `version`: of the declared one, where it is compared too. InputError
    when neither says so, when a record does not, or when the two differ."""
    record = read_record(folder)
    stored = str(record.get("protocol", ""))
    named = stored or (declared and ("protocol" in record or not (folder / RECORD).exists()))
    rule = "a model folder must name its tag protocol"
    hold(named, rule, f"{folder} has no protocol in {RECORD}", "set protocol=<id>")
    if stored and declared:
        rule, step = (
            f"the model must be of protocol {declared}",
            f"choose another policy, or set protocol={stored}",
        )
        hold(stored == declared, rule, f"{folder} is of protocol {stored}", step)
        found, rule = record.get("protocol_version", version), f"{rule} (version {version})"
        hold(
            version in (None, found),
            rule,
            f"{folder} is of version {found}",
            "choose another policy",
        )
    return stored or declared


def own_digest(body: Mapping[str, Any]) -> str:
    """SHA-256 (hexadecimal) of what a JSON object holds besides it."""
    rest = {key: value for key, value in body.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_state(path: Path, run: Path) -> dict[str, Any]:
    """The state in `path`, of the folder `run`. InputError when it is broken, or names a folder
    missing or outside."""
    broken = (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError)
    rule, step = (
        "state.json must name the checkpoints to continue from",
        "restore the file, or start a new run",
    )
    with holding(broken, rule, lambda error: f"{path} ({error!r})", step):
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        named = [*dict.values(state["folders"])]
        # As it is written: what is linked there is the user's affair.
        places = {folder: Path(os.path.normpath(run / folder)) for folder in named}
        outside = [folder for folder in named if not places[folder].is_relative_to(run)]
        missing = [folder for folder in named if not places[folder].is_dir()]
    hold(
        not outside,
        "state.json names folders of its own run",
        f"{path} names {outside}",
        "restore the file",
    )
    rule = "every checkpoint that state.json names must be there"
    hold(not missing, rule, f"{path} names {missing}", "restore these folders, or start a new run")
    return state
