"""From a YAML file to a `Protocol`.

Owns the file format: the fields of `Protocol`, and `inherits: <id or file>` for a variation of another one. Promises
that a file with a wrong key, type or tag is refused with the key named. Refuses to know where protocols are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ssp.errors import InputError
from ssp.protocols.base import ObservationForm, Protocol, Role, SearchForm
from ssp.protocols.template import FAMILIES, PLAIN, TOKENIZER

_BLOCKS: dict[str, type] = {"search": SearchForm, "observation": ObservationForm}
_TYPES: dict[str, type] = {
    "id": str,
    "version": int,
    "inherits": str,
    "kinds": list,
    "roles": dict,
    "search": dict,
    "observation": dict,
    "template": str,
    "plain": str,
    "one_line": bool,
    "question_mark": bool,
    "retry": str,
    "stops": list,
    "end": str,
}
_FORMS = ("text", "lines", "list", "tool")
_TAG = re.compile(r"[A-Za-z][\w-]*\Z")


def read(path: Path, find: Callable[[str], Path]) -> Protocol:
    """The protocol in `path`. `find` gives the file of an inherited id. InputError for whatever is wrong with it."""
    raw = _raw(path, find, ())
    for key in ("id", "version", "kinds", "roles"):
        if key not in raw:
            raise InputError("a protocol file has id, version, kinds and roles", f"{path}: no {key}", "add it")
    roles = {name: _block(path, f"roles.{name}", Role, block) for name, block in raw["roles"].items()}
    blocks = {name: _block(path, name, kind, raw.get(name, {})) for name, kind in _BLOCKS.items()}
    protocol = Protocol(
        id=raw["id"],
        version=raw["version"],
        kinds=tuple(raw["kinds"]),
        roles=roles,
        search=blocks["search"],
        observation_form=blocks["observation"],
        stop_strings=tuple(raw.get("stops", ())),
        **{key: raw[key] for key in ("template", "plain", "one_line", "question_mark", "retry", "end") if key in raw},
    )
    _check(path, protocol)
    return protocol


def _raw(path: Path, find: Callable[[str], Path], seen: tuple[Path, ...]) -> dict[str, Any]:
    """The file's keys over those that it inherits, block by block."""
    if path in seen:
        raise InputError("protocol files do not inherit in a circle", path, "remove one `inherits`")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        found = f"{path}: {' '.join(str(error).split())}"
        raise InputError("a protocol is a readable YAML file", found, "correct the file") from error
    if not isinstance(raw, dict):
        raise InputError("a protocol file holds keys and values", path, "write `key: value` lines")
    for key, value in raw.items():
        if key not in _TYPES:
            raise InputError(f"a protocol file has the keys {', '.join(_TYPES)}", f"{path}: {key}", "remove it")
        if not isinstance(value, _TYPES[key]):
            found = f"{path}: {key}: {value!r}"
            raise InputError(f"{key} of a protocol is a {_TYPES[key].__name__}", found, "correct it")
    if "inherits" not in raw:
        return raw
    return _over(_raw(find(raw.pop("inherits")), find, (*seen, path)), raw)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both else value
    return merged


def _block(path: Path, name: str, kind: type, values: Any) -> Any:
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    wrong = [key for key in values if key not in known] if isinstance(values, dict) else [values]
    if wrong:
        raise InputError(f"{name} of a protocol has the keys {', '.join(known)}", f"{path}: {wrong[0]}", "remove it")
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(f"{name} of a protocol is complete", f"{path}: {error}", "add what is missing") from error


def _check(path: Path, protocol: Protocol) -> None:
    tags = [protocol.search.tag, protocol.observation_form.tag, *(role.final for role in protocol.roles.values())]
    bad = [tag for tag in (*protocol.kinds, *tags) if not isinstance(tag, str) or not _TAG.match(tag)]
    if bad:
        raise InputError("a tag is a letter, then letters, digits, _ or -", f"{path}: {bad[0]!r}", "correct it")
    unknown = [tag for tag in tags if tag not in protocol.kinds]
    if unknown:
        raise InputError("kinds lists every tag of a protocol", f"{path}: {unknown[0]} is not there", "add it")
    if protocol.search.form not in _FORMS:
        raise InputError(f"search.form is one of {', '.join(_FORMS)}", f"{path}: {protocol.search.form}", "use one")
    if "{documents}" not in protocol.observation_form.text:
        raise InputError("observation.text has the hole {documents}", path, "add it")
    layouts = (PLAIN, TOKENIZER, *FAMILIES)
    if protocol.template not in layouts:
        raise InputError(f"template is one of {', '.join(layouts)}", f"{path}: {protocol.template}", "use one of these")
