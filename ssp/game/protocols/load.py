"""From a YAML file to a `Protocol`: its fields, and `inherits: <id or file>` for a variation of another one."""

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
_LAYOUTS = (PLAIN, TOKENIZER, *FAMILIES)


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
    if not isinstance(raw, dict) or "id" not in raw:
        raise InputError("a protocol file holds keys and values, and an id of its own", path, "add `id: my-protocol`")
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
        rule = f"{prefix.rstrip('.')} of a protocol holds keys and values"
        raise InputError(rule, f"{path}: {values!r}", "correct it")
    for key, value in values.items():
        if key not in fields:
            known = ", ".join([*fields, *(() if prefix else ("inherits", *_BLOCKS))])
            raise InputError(f"{prefix or 'a protocol '}has the keys {known}", f"{path}: {prefix}{key}", "remove it")
        wanted = _TYPES[fields[key].type]
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if type(value) is not wanted or not all(isinstance(part, str | Role) for part in inner):
            of = " of texts" if wanted in (list, dict) else ""
            rule = f"{prefix}{key} of a protocol is of type {wanted.__name__}{of}"
            raise InputError(rule, f"{path}: {prefix}{key}: {value!r}", "correct it")
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    try:
        return kind(**given, **more)
    except TypeError as error:
        raise InputError(f"{prefix or 'a protocol '}is complete", f"{path}: {error}", "add what is missing") from error


def _check(path: Path, protocol: Protocol) -> None:
    """What types do not say: each rule with whatever breaks it."""
    form, search = protocol.observation_form, protocol.search
    tags = [search.tag, form.tag, *(role.final for role in protocol.roles.values())]
    called = search.form in _FORMS or search.form.count(CALL) == 1
    holes = ", ".join(sorted(_HOLES))
    rules: dict[str, list[str]] = {
        "a protocol's id is letters, digits, _, - and .": [
            id for id in [protocol.id] if not re.fullmatch(r"[\w.-]+", id)
        ],
        "a tag is a letter, then letters, digits, _ or -": [
            tag for tag in (*protocol.kinds, *tags) if not re.fullmatch(r"[A-Za-z][\w-]*", tag)
        ],
        "kinds lists every tag of a protocol": [tag for tag in tags if tag not in protocol.kinds],
        f"search.form is one of {', '.join(_FORMS)}, or a call with one {CALL} in it": [] if called else [search.form],
        f"observation.document has the holes {holes}": sorted(set(HOLE.findall(form.document)) - _HOLES),
        "observation.text has the hole {documents}": [] if "{documents}" in form.text else [form.text],
        f"template is one of {', '.join(_LAYOUTS)}": sorted({protocol.template} - set(_LAYOUTS)),
        f"a role of a protocol is one of {', '.join(_NEEDS)}": sorted(set(protocol.roles) - set(_NEEDS)),
    }
    for name, role in protocol.roles.items():
        needs, filled = _NEEDS.get(name, set()), set(HOLE.findall(role.system + role.user))
        rules[f"the prompt of {name} has all its holes"] = [f"no {{{hole}}}" for hole in sorted(needs - filled)]
        rules[f"each hole in a prompt of {name} is filled, by the game or by `fields`"] = [
            f"{{{hole}}}" for hole in sorted(filled - needs - set(protocol.fields))
        ]
        rules[f"the result of {name} has another tag than a search"] = sorted({role.final} & {search.tag})
    for rule, broken in rules.items():
        if broken:
            raise InputError(rule, f"{path}: {broken}", "correct the file")
