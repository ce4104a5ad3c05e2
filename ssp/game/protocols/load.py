"""From a YAML file to a `Protocol`.

Owns the file format: the fields of `Protocol`, and `inherits: <id or file>` for a variation of another one. Promises
that a file with a wrong key, type, tag or hole is refused with the key named. Refuses to know where protocols are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ssp.base.errors import InputError
from ssp.game.protocols.base import HOLE, ObservationForm, Protocol, Role, SearchForm
from ssp.game.protocols.calls import HOLE as CALL
from ssp.game.protocols.template import FAMILIES, PLAIN, TOKENIZER

_TYPES = {
    "str": str,
    "int": int,
    "bool": bool,
    "tuple[str, ...]": list,
    "dict[str, str]": dict,
    "dict[str, Role]": dict,
}
"""A field's annotation → what YAML holds there."""
_BLOCKS: dict[str, type] = {"search": SearchForm, "observation": ObservationForm}
_FORMS = ("text", "lines", "list", "tool")
_HOLES = {"n", "id", "title", "text", "first_line", "contents"}
_NEEDS = {
    "solver": {"question"},
    "proposer": {"target"},
    "verifier": {"documents", "question"},
    "quoting": {"documents", "question"},
}
"""Role → the holes that the game fills in its prompt; without one of them it would ask for nothing."""
_ID = re.compile(r"[\w.-]+\Z")
_TAG = re.compile(r"[A-Za-z][\w-]*\Z")


def read(path: Path, find: Callable[[str], Path]) -> Protocol:
    """The protocol in `path`. `find` gives the file of an inherited id. InputError for whatever is wrong with it."""
    raw = _raw(path, find, ())
    blocks = {name: _made(path, f"{name}.", kind, raw.pop(name, {})) for name, kind in _BLOCKS.items()}
    roles = raw.get("roles")
    if isinstance(roles, dict):
        raw["roles"] = {name: _made(path, f"roles.{name}.", Role, block) for name, block in roles.items()}
    made: Protocol = _made(path, "", Protocol, raw, search=blocks["search"], observation_form=blocks["observation"])
    _check(path, made)
    return made


def _raw(path: Path, find: Callable[[str], Path], seen: tuple[Path, ...]) -> dict[str, Any]:
    """The file's keys over those that it inherits, block by block."""
    if path in seen:
        raise InputError("protocol files do not inherit in a circle", path, "remove one `inherits`")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        found = f"{path}: {' '.join(str(error).split())}"
        raise InputError("a protocol is a readable YAML file", found, "correct the file") from error
    if not isinstance(raw, dict):
        raise InputError("a protocol file holds keys and values", path, "write `key: value` lines")
    if "id" not in raw:
        raise InputError("a protocol file has an id of its own", f"{path}: no id", "add `id: my-protocol`")
    below = raw.pop("inherits", "")
    if not isinstance(below, str):
        raise InputError("inherits of a protocol is an id or a file", f"{path}: {below!r}", "correct it")
    if not below:
        return raw
    place = str(path.parent / below) if below.endswith((".yaml", ".yml")) else below
    return _over(_raw(find(place), find, (*seen, path)), raw)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both else value
    return merged


def _made(path: Path, prefix: str, kind: type, values: Any, **more: Any) -> Any:
    """A `kind` from the `values` in the file, each checked against the field's type; `prefix` names the place."""
    fields = {name: field for name, field in kind.__dataclass_fields__.items() if field.type in _TYPES}  # type: ignore[attr-defined]
    if not isinstance(values, dict):
        raise InputError(
            f"{prefix.rstrip('.')} of a protocol holds keys and values", f"{path}: {values!r}", "correct it"
        )
    for key, value in values.items():
        if key not in fields:
            known = ", ".join([*fields, *(() if prefix else ("inherits", *_BLOCKS))])
            raise InputError(f"{prefix or 'a protocol '}has the keys {known}", f"{path}: {prefix}{key}", "remove it")
        wanted = _TYPES[fields[key].type]
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if type(value) is not wanted or not all(isinstance(part, str | Role) for part in inner):
            found = f"{path}: {prefix}{key}: {value!r}"
            of = " of texts" if wanted in (list, dict) else ""
            raise InputError(f"{prefix}{key} of a protocol is of type {wanted.__name__}{of}", found, "correct it")
    try:
        return kind(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}, **more
        )
    except TypeError as error:
        raise InputError(f"{prefix or 'a protocol '}is complete", f"{path}: {error}", "add what is missing") from error


def _check(path: Path, protocol: Protocol) -> None:
    if not _ID.match(protocol.id):
        raise InputError("a protocol's id is letters, digits, _, - and .", f"{path}: {protocol.id!r}", "correct it")
    for name, role in protocol.roles.items():
        _check_role(path, name, role, protocol)
    form = protocol.observation_form
    tags = [protocol.search.tag, form.tag, *(role.final for role in protocol.roles.values())]
    bad = [tag for tag in (*protocol.kinds, *tags) if not _TAG.match(tag)]
    if bad:
        raise InputError("a tag is a letter, then letters, digits, _ or -", f"{path}: {bad[0]!r}", "correct it")
    unknown = [tag for tag in tags if tag not in protocol.kinds]
    if unknown:
        raise InputError("kinds lists every tag of a protocol", f"{path}: {unknown[0]} is not there", "add it")
    if protocol.search.form not in _FORMS and protocol.search.form.count(CALL) != 1:
        rule = f"search.form is one of {', '.join(_FORMS)}, or how a call is written with one {CALL} in it"
        raise InputError(rule, f"{path}: {protocol.search.form}", "use one")
    holes = set(HOLE.findall(form.document)) - _HOLES
    if holes:
        rule = f"observation.document has the holes {', '.join(sorted(_HOLES))}"
        raise InputError(rule, f"{path}: {sorted(holes)[0]}", "remove it")
    if "{documents}" not in form.text:
        raise InputError("observation.text has the hole {documents}", path, "add it")
    layouts = (PLAIN, TOKENIZER, *FAMILIES)
    if protocol.template not in layouts:
        raise InputError(f"template is one of {', '.join(layouts)}", f"{path}: {protocol.template}", "use one of these")


def _check_role(path: Path, name: str, role: Role, protocol: Protocol) -> None:
    """A role that the game has, whose prompt shows all that it is given and has no hole that nobody fills."""
    if name not in _NEEDS:
        raise InputError(f"a role of a protocol is one of {', '.join(_NEEDS)}", f"{path}: {name}", "correct its name")
    holes = set(HOLE.findall(role.system + role.user))
    for hole in sorted(_NEEDS[name] - holes):
        raise InputError(f"the prompt of {name} has the hole {{{hole}}}", f"{path}: roles.{name}.user", "add it")
    for hole in sorted(holes - _NEEDS[name] - set(protocol.fields)):
        rule = f"{{{hole}}} in a prompt of {name} is filled: by the game, or where a row says nothing by `fields`"
        raise InputError(rule, f"{path}: roles.{name}", f"add {hole} to fields, or write it without braces")
    if role.final == protocol.search.tag:
        raise InputError(f"the result of {name} has another tag than a search", f"{path}: {role.final}", "change one")
