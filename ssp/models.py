"""Where a model lies on this machine.

Owns the places: a folder (as typed, or below `$SSP_HOME`), what `ssp download` fetched, the hub's own cache. Promises that
nothing is fetched. Refuses to read models.
"""

from __future__ import annotations

import re
from pathlib import Path

from ssp import cache, runfolder
from ssp.errors import InputError

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def fetched(name: str) -> Path:
    """Where `ssp download` puts `name`."""
    return cache.root() / "hub" / name.replace("/", "--")


def find(name: str, key: str) -> Path | None:
    """The folder of the model that the setting `key` names, a folder or `organisation/name`; None: it is not here."""
    given = runfolder.resolve(name, key)
    if given.is_dir():
        return given
    if not _HUB_NAME.fullmatch(name):
        return None
    if fetched(name).is_dir():
        return fetched(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def folder(name: str, key: str) -> Path:
    """As `find`; InputError when it is not here."""
    found = find(name, key)
    if found is None:
        rule = f"{key} is an existing folder, or a model of the hub that was downloaded"
        raise InputError(rule, name, f"ssp download {name} --type model, or set {key} to a folder")
    return found
