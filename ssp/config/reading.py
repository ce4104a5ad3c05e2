"""From raw settings to a `Config`: pydantic reads them, and what it refuses is said in the words of
a person who has to type something else.

Promises that all that is refused is said at once, and that a rule which speaks of a refused value
is left out."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError

from ssp.base.errors import InputError, refuse
from ssp.config import keys
from ssp.config.cluster import PlacementConfig
from ssp.config.fields import (
    BLOCK,
    INF,
    MOST,
    TEXT,
    choices,
    ends,
    hints,
    is_block,
    leaves,
    plain,
    schema_of,
    takes_own,
)
from ssp.config.keys import Place, shown
from ssp.config.rules import Rule, refused
from ssp.config.schema import Config

Raw = dict[str, Any]
Written = Callable[[Place], tuple[Place, str]]
"""Where a value comes from: the place that somebody wrote, and the name of the file, or the command
line."""

_BY_ROLE: tuple[Place, ...] = ((), ("placement",), ("schedule", "max_staleness"))
"""Blocks whose keys are named after the roles of the game."""
_STRANGE = ("unexpected_keyword_argument", "invalid_key")
_RANGE = ("greater_than_equal", "less_than_equal", "finite_number")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check(raw: Raw, roles: tuple[str, ...], written: Written, rules: Sequence[Rule]) -> Config:
    """The configuration of these settings. InputError with all that is refused. A rule that speaks
    of a setting whose own value is refused is left out; where a key is unknown nobody knows what
    was meant, and all rules are."""
    draft = Draft(raw, roles, written)
    cfg = draft.config()
    errors = [*draft.strange.values(), *draft.wrong.values()]
    if not draft.strange:
        about = [re.compile(rf"(?<![\w.]){re.escape(key)}(?!\w)") for key in draft.wrong]
        for error in refused(cfg, rules):
            if not any(key.search(str(error)) for key in about):
                errors.append(error)
    refuse(errors)
    return cfg


@functools.cache
def _adapter() -> TypeAdapter[Config]:
    """The validator. Building it is slow, and one is enough."""
    return TypeAdapter(Config)


class Draft:
    """Settings on their way to a `Config`: what pydantic refuses is kept, and left out."""

    def __init__(self, raw: Raw, roles: tuple[str, ...], written: Written) -> None:
        self._raw, self._roles, self._written = raw, roles, written
        self.strange: dict[str, InputError] = {}
        self.wrong: dict[str, InputError] = {}

    def config(self) -> Config:
        """The configuration, with the default in the place of what is refused."""
        self._refuse([(place, _STRANGE[0]) for place in self._strangers()])
        empty = [key for key, value in leaves(self._raw) if value == "???"]
        self._refuse([(tuple(key.split(".")), "missing") for key in empty])
        while True:
            try:
                return _adapter().validate_python(_nested(self._raw))
            except ValidationError as error:
                each = error.errors(include_url=False)
                self._refuse([(self._place(one["loc"]), one["type"]) for one in each])

    def _strangers(self) -> list[Place]:
        """Keys that are named after no role."""
        known = keys.all_keys(self._roles)
        strange = []
        for above in _BY_ROLE:
            block = keys.value(self._raw, above)
            for name in block if isinstance(block, dict) else ():
                if "." in str(name) or shown((*above, name)) not in known:
                    strange.append((*above, name))
        return strange

    def _place(self, loc: Place) -> Place:
        """The place of an error, in keys as somebody types them. A word in a list stands at the
        place of the list. What pydantic calls the members of a union is left out."""
        if loc[0] == "blocks":
            loc = loc[1:]
        elif loc[:2] == ("placement", "players"):
            loc = ("placement", f"{loc[2]}s", *loc[3:])
        place: Place = ()
        value: Any = self._raw
        for step in loc:
            if not isinstance(value, dict | list):
                break
            if step in (TEXT, BLOCK):
                continue
            below = (*place, step)
            if isinstance(value, list) and not is_block(keys.hint(below, self._roles)):
                break
            place = below
            value = keys.value(value, (step,))
        return place

    def _refuse(self, places: Sequence[tuple[Place, str]]) -> None:
        """Say what is wrong at each place, then leave out what stands there."""
        for place, kind in places:
            written, source = self._written(place)
            key, hint = shown(written), keys.hint(written, self._roles)
            if kind in _STRANGE:
                self.strange.setdefault(key, keys.unknown(written, self._roles, source))
            elif key not in self.wrong:
                value = keys.value(self._raw, place)
                self.wrong[key] = _refusal(written, hint, kind, value, source)
        for place, _ in places:
            self._drop(place)

    def _drop(self, place: Place) -> None:
        """Leave out the value, or the list that it stands in."""
        block: Any = self._raw
        for step in place[:-1]:
            if not isinstance(block.get(step), dict):
                block.pop(step, None)
                return
            block = block[step]
        block.pop(place[-1], None)


def _nested(raw: Raw) -> Raw:
    """Settings as the schema has them: what roles name lies in a block of its own."""
    nested: Raw = {"blocks": {}}
    for name, value in raw.items():
        block = nested if keys.is_fixed(name) else nested["blocks"]
        block[name] = value
    place = raw.get("placement")
    if isinstance(place, dict):
        known = hints(PlacementConfig)
        inner: Raw = {"players": {}}
        for name, value in place.items():
            if name in known:
                inner[name] = value
            else:
                inner["players"][name.removesuffix("s")] = value
        nested["placement"] = inner
    return nested


def _refusal(place: Place, hint: Any, kind: str, value: object, source: str) -> InputError:
    """What pydantic found, in the words of a person who has to type something else."""
    key, base = shown(place), schema_of(hint)
    if kind == "missing":
        where = f"{key}: ??? in {source}"
        return InputError("every key needs a value", where, "set it, or leave it out")
    if choices(hint):
        return _choice(place, hint, value)
    if kind in _RANGE:
        return _range(key, hint, value)
    word = _WORDS.get(base, "")
    step = f"type {key}=<{word}>"
    if is_block(base):
        word = "a block of settings" if base is plain(hint) else "a text, or a block of settings"
        step = f"set one of its keys instead: {', '.join(hints(base))}"
    elif get_origin(base) is dict:
        word, step = "a block", f"write {key}.KEY=VALUE"
    elif get_origin(base) is list:
        word = "a list" if not isinstance(value, list) else "a list of words"
        step = f"write the whole list: {key}=[...]"
    return InputError(f"{key} in {source} is {word}", repr(value), step)


def _choice(place: Place, hint: Any, value: object) -> InputError:
    """A name that is none of the choices. The default is advised, which stands with what is set;
    the last one where that is nothing."""
    key, names = shown(place), choices(hint)
    listed = [name or "''" for name in names]
    if takes_own(hint):
        listed.append("or your own my_file.py:name")
    typed = value if isinstance(value, str) and value else repr(value)
    rule = f"{key} is one of {', '.join(listed)}"
    advised = keys.default(place) or names[-1]
    return InputError(rule, typed, f"set {key}={advised}")


def _range(key: str, hint: Any, value: Any) -> InputError:
    within = ends(hint)
    low, high = (-INF, INF) if within is None else (within.low, within.high)
    most = MOST if high == INF else 2**63 - 1
    if isinstance(value, int) and abs(value) > most:
        rule = f"{key} is a number that a run may reach"
        return InputError(rule, f"{value}", "type a smaller one")
    if low == -INF:
        return InputError(f"{key} is a finite number", value, f"set {key}=0")
    if high == INF:
        return InputError(f"{key} is at least {low:g}", value, f"set {key}={low:g} or more")
    span = f"from {low:g} to {high:g}"
    return InputError(f"{key} is {span}", value, f"set it {span}")
