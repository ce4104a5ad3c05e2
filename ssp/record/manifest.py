"""What this package wrote says of itself: `ssp.json` of a model folder, `checkpoints/state.json` of
a run."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ssp.base import cache
from ssp.base.errors import InputError, hold, holding
from ssp.base.files import digest
from ssp.base.models import RECORD, read_json

EXACT = "tokenization_exact.py"
"""The class that a tokenizer's configuration names, so that `AutoTokenizer` reads tokenizer.json as
it is."""


def read_record(folder: Path) -> dict[str, Any]:
    """The folder's record, {} when it has none. InputError when it is not a JSON object."""
    path = folder / RECORD
    return dict(read_json(path)) if path.exists() else {}


def check_files(folder: Path, whole: bool = False) -> None:
    """InputError naming the file of `folder` that differs from the SHA-256 in its record; no
    record, no comparison. Without `whole` only the model's own files count: a copy may leave out
    what a learner keeps beside them (`*.pt`, sub-folders)."""
    digests = read_record(folder).get("sha256", {})
    rule = f"{RECORD} must hold sha256 by file"
    hold(isinstance(digests, dict), rule, folder / RECORD, "use another folder")
    for name, expected in digests.items():
        if not whole and ("/" in name or name.endswith(".pt")):
            continue
        path = folder / name
        actual = digest(path) if path.is_file() else "no such file"
        rule = f"files of a model folder are as they were written; sha256 of {path} is {expected}"
        hold(actual == expected, rule, actual, "copy the folder again, or use another one")


def seal(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the folder's `ssp.json`: `record`, and the SHA-256 of every file that is there.

    All get the mode that a new file has here: safetensors makes its own for their owner alone."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    digests = {str(path.relative_to(folder)): digest(path) for path in files}
    text = json.dumps({**record, "sha256": digests}, indent=1, sort_keys=True)
    sealed = folder / RECORD
    sealed.write_text(text + "\n", encoding="utf-8")
    mode = stat.S_IMODE(sealed.stat().st_mode)
    for path in files:
        path.chmod(mode)


def sound(folder: Path, what: str = EXACT) -> bool:
    """Whether `folder` is as `seal` left it, and its record names `what`: a file, or an entry."""
    try:
        check_files(folder, whole=True)
    except InputError:
        return False
    record = read_record(folder)
    return what in record or what in record.get("sha256", {})


def filled(folder: Path, what: str, sha: str, write: Callable[[Path], None]) -> bool:
    """Have `write` fill a model's new `folder`, which is there whole or not at all. It seals it with
    the digest `sha` of the file that the model is made from, in the entry `what`.

    False: it is there already. InputError for a folder that holds something else or cannot be
    written."""
    if folder.exists():
        made = folder.is_dir() and read_record(folder).get(what, "") == sha
        empty = folder.is_dir() and not any(folder.iterdir())
        rule = "a model gets a folder of its own: new, empty, or made from the same file"
        hold(made or empty, rule, folder, "remove it, or give another folder: --to")
    whole = partial(sound, what=what)
    if whole(folder):
        return False
    try:
        cache.put(folder, write, whole)
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        why = f"{folder}: {error.strerror}"
        raise InputError("the folder can be written", why, "give another: --to") from error
    return True


def protocol_of(folder: Path, declared: str = "", version: int | None = None) -> str:
    """The id of the tag protocol that the folder's model speaks. It is the one of its record. A
    model that was never trained here (no record, or an empty id in it) speaks the one that is
    `declared`. `version`: of the declared one, where it is compared too. InputError when neither
    names one, when a record lacks it, or when the two differ."""
    record = read_record(folder)
    stored = str(record.get("protocol", ""))
    if not stored:
        untrained = "protocol" in record or not (folder / RECORD).exists()
        rule = "a model folder must name its tag protocol"
        step = "set protocol=<id>"
        if declared:
            step = f"take another policy, or write its protocol into {RECORD}"
        hold(declared and untrained, rule, f"{folder} has no protocol in {RECORD}", step)
        return declared
    if not declared:
        return stored

    rule = f"the model must be of protocol {declared}"
    step = f"choose another policy, or set protocol={stored}"
    hold(stored == declared, rule, f"{folder} is of protocol {stored}", step)
    kept = record.get("protocol_version", version)
    rule = f"{rule} (version {version})"
    step = "choose another policy"
    hold(version in (None, kept), rule, f"{folder} is of version {kept}", step)
    return stored


def own_digest(body: Mapping[str, Any]) -> str:
    """SHA-256 (hexadecimal) of what a JSON object holds besides it."""
    rest = {key: value for key, value in body.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_state(path: Path, run: Path) -> dict[str, Any]:
    """The state in `path`, of the folder `run`. InputError when it is broken, or names a folder
    missing or outside."""
    broken = (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError)
    rule = "state.json must name the checkpoints to continue from"
    step = "restore the file, or start a new run"
    with holding(broken, rule, lambda error: f"{path} ({error!r})", step):
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        outside, missing = [], []
        for folder in dict.values(state["folders"]):
            # As it is written: what is linked there is the user's affair.
            place = Path(os.path.normpath(run / folder))
            if not place.is_relative_to(run):
                outside.append(folder)
            if not place.is_dir():
                missing.append(folder)
    rule = "state.json names folders of its own run"
    hold(not outside, rule, f"{path} names {outside}", "restore the file")
    rule = "every checkpoint that state.json names must be there"
    hold(not missing, rule, f"{path} names {missing}", "restore these folders, or start a new run")
    return state
