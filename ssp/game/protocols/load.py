"""Reads a protocol from a YAML file, whose key `inherits` names the protocol that it varies."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ssp.base.errors import InputError, hold, holding
from ssp.config.fields import merge
from ssp.game.protocols.base import HOLE, Protocol
from ssp.game.protocols.calls import HOLE as CALL
from ssp.game.protocols.template import CHATS, FAMILIES, PLAIN

_FORMS = ("text", "list", "tool")
_HOLES = {"n", "id", "title", "text", "first_line", "contents"}
_CHECKED = {"documents", "question"}
_NEEDS = {"solver": {"question"}, "proposer": {"target"}, "verifier": _CHECKED, "quoting": _CHECKED}
"""Role → the holes of its prompt that the game fills, each of which the prompt must have."""
_LAYOUTS = (PLAIN, *CHATS, *FAMILIES)


def read(path: Path, find: Callable[[str], Path]) -> Protocol:
    """The protocol in `path`. `find` gives the file of an inherited id. InputError for whatever is
    wrong with it."""
    keys = _keys(path, find, ())
    if "observation" in keys:
        keys["observation_form"] = keys.pop("observation")
    try:
        protocol = TypeAdapter(Protocol).validate_json(json.dumps(keys))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        rule = "a protocol has the keys of docs/protocols.md, each of its type"
        wrong = f"{path}: {place}: {first['msg']}, not {first['input']!r}"
        raise InputError(rule, wrong, "correct the file") from error
    except TypeError as error:  # a date, say
        rule = "a protocol holds texts, numbers and lists"
        raise InputError(rule, f"{path}: {error}", "quote it") from error
    for rule, broken in _rules(protocol):
        hold(not broken, rule, f"{path}: {broken}", "correct the file")
    return protocol


def _keys(path: Path, find: Callable[[str], Path], heirs: tuple[Path, ...]) -> dict[str, Any]:
    """The file's keys over those that it inherits, block by block. `heirs`: the files that inherit
    from it."""
    rule = "protocol files do not inherit in a circle"
    hold(path not in heirs, rule, path, "remove one `inherits`")
    unreadable = OSError, ValueError, RecursionError, yaml.YAMLError
    rule = "a protocol is a readable YAML file"

    def told(error: Exception) -> str:
        return f"{path}: {' '.join(str(error).split())}"

    with holding(unreadable, rule, told, "correct the file"):
        keys = yaml.safe_load(path.read_text(encoding="utf-8"))
    rule = "a protocol file holds keys and values, and an id of its own"
    hold(isinstance(keys, dict) and "id" in keys, rule, path, "add `id: my-protocol`")
    below = keys.pop("inherits", "")
    rule = "inherits of a protocol is an id or a file"
    hold(isinstance(below, str), rule, f"{path}: {below!r}", "correct it")
    if not below:
        return keys
    if below.endswith((".yaml", ".yml")):
        below = str(path.parent / below)
    return merge(_keys(find(below), find, (*heirs, path)), keys)


def _rules(protocol: Protocol) -> Iterator[tuple[str, list[str]]]:
    """What types do not say: each rule, and whatever breaks it."""
    odd_id = not re.fullmatch(r"[\w.-]+", protocol.id)
    yield "a protocol's id is letters, digits, _, - and .", [protocol.id] * odd_id

    form = protocol.observation_form
    search = protocol.search
    tags = [search.tag, form.tag, *(role.final for role in protocol.roles.values())]
    odd_tags = [tag for tag in (*protocol.kinds, *tags) if not re.fullmatch(r"[A-Za-z][\w-]*", tag)]
    yield "a tag is a letter, then letters, digits, _ or -", odd_tags
    unlisted = [tag for tag in tags if tag not in protocol.kinds]
    yield "kinds lists every tag of a protocol", unlisted

    rule = f"search.form is one of {', '.join(_FORMS)}, or a call with one {CALL} in it"
    odd_form = search.form not in _FORMS and search.form.count(CALL) != 1
    yield rule, [search.form] * odd_form
    rule = f"observation.document has the holes {', '.join(sorted(_HOLES))}"
    yield rule, sorted(set(HOLE.findall(form.document)) - _HOLES)
    no_documents = "{documents}" not in form.text
    yield "observation.text has the hole {documents}", [form.text] * no_documents

    rule = "tools are settings of a role, not of a protocol"
    yield rule, [offer.name for offer in protocol.offers]
    rule = f"template is one of {', '.join(_LAYOUTS)}"
    yield rule, sorted({protocol.template} - set(_LAYOUTS))
    rule = f"a role of a protocol is one of {', '.join(_NEEDS)}"
    yield rule, sorted(set(protocol.roles) - set(_NEEDS))

    for name, role in protocol.roles.items():
        needs = _NEEDS[name]
        holes = set(HOLE.findall(role.system + role.user))
        missing = [f"no {{{hole}}}" for hole in sorted(needs - holes)]
        yield f"the prompt of {name} has all its holes", missing
        unfilled = [f"{{{hole}}}" for hole in sorted(holes - needs - set(protocol.fields))]
        yield f"each hole in a prompt of {name} is filled, by the game or by `fields`", unfilled
        same_tag = role.final == search.tag
        yield f"the result of {name} has another tag than a search", [search.tag] * same_tag
