"""From a YAML file to a `Protocol`: its fields, and `inherits: <id or file>` for a variation of
another one."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ssp.base.errors import InputError, hold, holding
from ssp.config.fields import merge
from ssp.game.protocols.base import HOLE, Protocol
from ssp.game.protocols.calls import HOLE as CALL
from ssp.game.protocols.template import FAMILIES, PLAIN, TOKENIZER

_FORMS = ("text", "list", "tool")
_HOLES = {"n", "id", "title", "text", "first_line", "contents"}
_CHECKED = {"documents", "question"}
_NEEDS = {"solver": {"question"}, "proposer": {"target"}, "verifier": _CHECKED, "quoting": _CHECKED}
"""Role → the holes that the game fills in its prompt; without one of them it would ask for
nothing."""
_LAYOUTS = (PLAIN, TOKENIZER, *FAMILIES)


def read(path: Path, find: Callable[[str], Path]) -> Protocol:
    """The protocol in `path`. `find` gives the file of an inherited id. InputError for whatever is
    wrong with it."""
    raw = _raw(path, find, ())
    if "observation" in raw:
        raw["observation_form"] = raw.pop("observation")
    try:
        made = TypeAdapter(Protocol).validate_json(json.dumps(raw))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        found = (
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}, not {first['input']!r}"
        )
        rule = "a protocol has the keys of docs/protocols.md, each of its type"
        raise InputError(rule, found, "correct the file") from error
    except TypeError as error:  # a date, say
        raise InputError(
            "a protocol holds texts, numbers and lists", f"{path}: {error}", "quote it"
        ) from error
    _check(path, made)
    return made


def _raw(path: Path, find: Callable[[str], Path], seen: tuple[Path, ...]) -> dict[str, Any]:
    """The file's keys over those that it inherits, block by block."""
    hold(
        path not in seen, "protocol files do not inherit in a circle", path, "remove one `inherits`"
    )
    odd, rule = (
        (OSError, ValueError, RecursionError, yaml.YAMLError),
        "a protocol is a readable YAML file",
    )
    with holding(
        odd, rule, lambda error: f"{path}: {' '.join(str(error).split())}", "correct the file"
    ):
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    rule, whole = (
        "a protocol file holds keys and values, and an id of its own",
        isinstance(raw, dict) and "id" in raw,
    )
    hold(whole, rule, path, "add `id: my-protocol`")
    below = raw.pop("inherits", "")
    hold(
        isinstance(below, str),
        "inherits of a protocol is an id or a file",
        f"{path}: {below!r}",
        "correct it",
    )
    if not below:
        return raw
    place = str(path.parent / below) if below.endswith((".yaml", ".yml")) else below
    return merge(_raw(find(place), find, (*seen, path)), raw)


def _check(path: Path, protocol: Protocol) -> None:
    """What types do not say: each rule with whatever breaks it."""
    form, search = protocol.observation_form, protocol.search
    tags = [search.tag, form.tag, *(role.final for role in protocol.roles.values())]
    called = search.form in _FORMS or search.form.count(CALL) == 1
    holes = ", ".join(sorted(_HOLES))
    rules: dict[str, list[str]] = {
        "a protocol's id is letters, digits, _, - and .": []
        if re.fullmatch(r"[\w.-]+", protocol.id)
        else [protocol.id],
        "a tag is a letter, then letters, digits, _ or -": [
            tag for tag in (*protocol.kinds, *tags) if not re.fullmatch(r"[A-Za-z][\w-]*", tag)
        ],
        "kinds lists every tag of a protocol": [tag for tag in tags if tag not in protocol.kinds],
        f"search.form is one of {', '.join(_FORMS)}, or a call with one {CALL} in it": []
        if called
        else [search.form],
        f"observation.document has the holes {holes}": sorted(
            set(HOLE.findall(form.document)) - _HOLES
        ),
        "observation.text has the hole {documents}": []
        if "{documents}" in form.text
        else [form.text],
        "tools are settings of a role, not of a protocol": [
            offer.name for offer in protocol.offers
        ],
        f"template is one of {', '.join(_LAYOUTS)}": sorted({protocol.template} - set(_LAYOUTS)),
        f"a role of a protocol is one of {', '.join(_NEEDS)}": sorted(
            set(protocol.roles) - set(_NEEDS)
        ),
    }
    for name, role in protocol.roles.items():
        needs, filled = _NEEDS.get(name, set()), set(HOLE.findall(role.system + role.user))
        rules[f"the prompt of {name} has all its holes"] = [
            f"no {{{hole}}}" for hole in sorted(needs - filled)
        ]
        rules[f"each hole in a prompt of {name} is filled, by the game or by `fields`"] = [
            f"{{{hole}}}" for hole in sorted(filled - needs - set(protocol.fields))
        ]
        rules[f"the result of {name} has another tag than a search"] = sorted(
            {role.final} & {search.tag}
        )
    for rule, broken in rules.items():
        hold(not broken, rule, f"{path}: {broken}", "correct the file")
