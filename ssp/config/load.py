"""From a config name or file and `key=value` overrides to one checked `Config`.

Owns reading, merging and the messages about keys and types. Promises this order, later wins:
schema, the file's `defaults`, the file's role block, `defaults.x=` on the command line,
`proposer.x=` or `solver.x=` on the command line; so what is typed beats what is written, and a role
beats its defaults in the same place. Options go with the reward that they stand beside: who names
another reward leaves them behind.
Refuses unknown keys at any depth, and to know which values make sense (`ssp.config.rules`)."""

import difflib
import functools
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ssp.base.errors import InputError, hold, holding
from ssp.config import gone, own, rules
from ssp.config.fields import merge
from ssp.config.keys import all_keys, check_keys
from ssp.config.schema import Config

Raw = dict[str, Any]
_SUFFIXES = (".yaml", ".yml")
_ROLES = ("proposer", "solver")
_HERE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")
_COMMAND_LINE = "the command line"
_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
}
DEEPEST = 16
"""Words in a key; no block lies so deep, and what is read is walked by functions that call
themselves."""
FOREIGN = 12
"""Keys of another system that one message names."""


def load(
    name_or_file: str,
    overrides: Sequence[str] = (),
    trusted: bool = True,
    combinations: Sequence[rules.Rule] = (),
) -> Config:
    """The configuration, its values checked, and its `combinations`.
    `name_or_file`: a shipped config's name, or a path (ends in .yaml, or holds a slash).

    `overrides`: `key=value` texts, values as in YAML. `trusted`: False for the config.yaml of a run
    that is looked at, of which nothing is executed or sent: its places of code and keys' addresses
    are sealed, interpolations refused, settings that are gone left out. Raises InputError for a
    missing file, broken YAML, an unknown key, a wrong type or range, and values that contradict
    each other."""
    path = find(name_or_file)
    file, typed = _read(path), _parse_overrides(overrides)
    if not trusted:
        _seal(file, path, typed)
        file = _without_gone(file)
    for raw, source in ((file, str(path)), (typed, _COMMAND_LINE)):
        _refuse_foreign(raw, source)
        check_keys(raw, Config, "", source)
        _typed(raw, source)
    merged = merge(file, typed)
    for role in _ROLES:
        merged[role] = _inherit(role, file, typed)
    if "preset" in (schedule := merged.get("schedule", {})):
        with _named_errors(merged, str(path)):
            typed_of = _typed(merged, str(path)).schedule
            schedule["preset"] = typed_of.preset
            for role in schedule.get("max_staleness", {}):
                schedule["max_staleness"][role] = getattr(typed_of.max_staleness, role)
    rules.expand_preset(merged)
    with _named_errors(merged, str(path)):  # interpolations are resolved
        cfg = cast(Config, OmegaConf.to_object(_typed(merged, str(path))))
    rules.check(cfg, combinations)
    return cfg


def stated(name_or_file: str, overrides: Sequence[str] = ()) -> dict[str, object]:
    """Dotted keys that the file or the overrides set, with the values as written. InputError as in
    `load`."""
    return dict(leaves(merge(_read(find(name_or_file)), _parse_overrides(overrides))))


def layered(name_or_file: str, overrides: Sequence[str] = ()) -> Raw:
    """What a file has to hold so that `load` of it gives what `load` of this file and these
    overrides gives."""
    raw, typed = _read(find(name_or_file)), _parse_overrides(overrides)
    for name in ("defaults", *_ROLES):
        block, above = raw.get(name, {}), typed.get(name, {})
        if above.get("reward", block.get("reward")) != block.get("reward"):
            block.pop("reward_options", None)
        if name != "defaults":
            _drop(block, typed.get("defaults", {}))
    return merge(raw, typed)


def _drop(block: Raw, above: Raw) -> None:
    """Take out of a role's block what `above` says for both roles."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(block.get(key), dict):
            _drop(block[key], value)
        else:
            block.pop(key, None)


def dotted(cfg: Config) -> dict[str, Any]:
    """Every key and value of a configuration, by its full name."""
    return dict(leaves(cast(Raw, OmegaConf.to_container(OmegaConf.structured(cfg)))))


def to_yaml(cfg: Config) -> str:
    """The resolved configuration as YAML; `load` of it gives an equal `Config`."""
    return OmegaConf.to_yaml(OmegaConf.structured(cfg))


def names() -> list[str]:
    """Names of the shipped configs, sorted."""
    return sorted(path.stem for path in shipped_folder().glob("*.yaml"))


def shipped_folder() -> Path:
    """Folder of the shipped configs: inside the package once installed, beside it in the
    repository."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def find(name_or_file: str) -> Path:
    """The file of a shipped name or a path. InputError names the shipped configs when there is
    none."""
    if name_or_file.endswith(_SUFFIXES) or "/" in name_or_file:
        path = Path(name_or_file).expanduser()
        step = f"check the path, or use a shipped one: {', '.join(names())}"
        hold(path.is_file(), "a config file must exist", path, step)
        return path
    path = shipped_folder() / f"{name_or_file}.yaml"
    if path.is_file():
        return path
    near = difflib.get_close_matches(name_or_file, names(), n=1)
    hint = f"did you mean {near[0]}?" if near else f"shipped configs: {', '.join(names())}"
    raise InputError("--config is a shipped name or a path to a .yaml file", name_or_file, hint)


def _read(path: Path) -> Raw:
    odd = (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError, OSError)
    with holding(
        odd,
        f"{path} must be a readable YAML file",
        lambda e: " ".join(str(e).split()),
        "correct the file",
    ):
        loaded = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(loaded, dict):
        raise InputError(
            f"{path} must hold keys and values",
            f"a {type(loaded).__name__}",
            "write `key: value` lines",
        )
    return cast(Raw, loaded)


def _seal(file: Raw, path: Path, typed: Raw) -> None:
    """What a file that nobody vouches for may not do: name code that runs, name whom keys go to,
    read the environment."""
    for key, value in leaves(file):
        rule = "the config.yaml of a run holds plain values"
        hold(
            "${" not in f"{key} {value}",
            rule,
            f"an interpolation in {key}, in {path}",
            "write its value there",
        )
    for name in ("defaults", *_ROLES):
        block = file.get(name)
        if isinstance(block, dict):
            own.seal(block)
            _seal_address(block.get("engine"))
    _seal_address(file.get("judge"))
    if _value_of(merge(file, typed), "retriever.online.engine"):  # whose key goes to that address
        _seal_address(file.get("retriever"))


def _without_gone(block: Raw, prefix: str = "") -> Raw:
    """The settings of a run that an earlier version played, without those that are gone since."""
    kept: Raw = {}
    for key, value in block.items():
        if gone.row(f"{prefix}{key}"):
            continue
        below = _without_gone(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        if below == value or below:
            kept[key] = below
    return kept


def _seal_address(block: object) -> None:
    """Seal the address in a block, unless it is this machine's: a key would be sent there."""
    if isinstance(block, dict) and block.get("url") and not _HERE.match(str(block["url"])):
        block["url"] = f"{own.SEALED}{block['url']}"


def _parse_overrides(overrides: Sequence[str]) -> Raw:
    """Dotted `key=value` texts as one nested mapping, the last of a repeated key winning."""
    tree: Raw = {}
    types = all_keys(Config, "")
    for text in overrides:
        key, equals, value = text.partition("=")
        steps = key.strip().split(".")
        if not equals or not all(steps) or len(steps) > DEEPEST:
            raise InputError(
                "a setting is typed as key=value",
                text,
                "write for example steps=20 (no spaces around =)",
            )
        try:
            parsed = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={value}"]))
        except (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
            raise InputError(
                f"the value of {key} must be YAML", value, "quote it: 'key=\"text\"'"
            ) from error
        assert isinstance(parsed, dict)
        leaf = "" if parsed["value"] is None and value.strip() == "" else parsed["value"]
        if (
            types.get(key.strip()) is str
            and leaf is not None
            and not value.lstrip().startswith(("{", "["))
        ):
            # 007, on and step: are words too
            leaf = leaf if isinstance(leaf, str) else value.strip()
        node = tree
        for step in steps[:-1]:
            below = node.setdefault(step, {})
            if not isinstance(below, dict):
                raise InputError(
                    "a key is a block or a value, not both", text, f"leave one of them out: {key}"
                )
            node = below
        if isinstance(leaf, dict) and isinstance(node.get(steps[-1]), dict):
            leaf = merge(node[steps[-1]], leaf)
        node[steps[-1]] = leaf
    return tree


def _inherit(role: str, file: Raw, typed: Raw) -> Raw:
    """The role's block in the order that the module's docstring promises."""
    block: Raw = {}
    for source in (file, typed):
        for name in ("defaults", role):
            above = source.get(name, {})
            if above.get("reward", block.get("reward")) != block.get("reward"):
                block.pop("reward_options", None)
            block = merge(block, above)
    return block


def _refuse_foreign(raw: Raw, source: str) -> None:
    """Keys of the reference systems, and settings of ours that are gone, are named all at once,
    with what replaces them."""
    given, known = dict(leaves(raw)), all_keys(Config, "")
    foreign = [key for key in given if key not in known and gone.word(key)]
    values = [f"{key}={value}" for key, value in given.items() if key in known]
    foreign += [value for value in values if gone.row(value)]
    told, more = foreign[:FOREIGN], ", ..." if len(foreign) > FOREIGN else ""
    named = f"{', '.join(told)}{more} in {source}"
    hold(not foreign, "every config key must exist", named, gone.advice(told))


def leaves(raw: Raw, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted names and values of what is no block."""
    for key, value in raw.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@functools.cache
def _schema() -> DictConfig:
    """The typed defaults. Building them is slow and merging copies them, so one is enough."""
    return cast(DictConfig, OmegaConf.structured(Config))


def _typed(raw: Raw, source: str) -> DictConfig:
    """`raw` over the schema's defaults; a value of the wrong type is named with its key."""
    with _named_errors(raw, source):
        return cast(DictConfig, OmegaConf.merge(_schema(), OmegaConf.create(raw)))


@contextmanager
def _named_errors(raw: Raw, source: str) -> Iterator[None]:
    """OmegaConf's complaints as InputError: the rule, the value found, what to type."""
    try:
        yield
    except (OmegaConfBaseException, OverflowError) as error:
        huge = (
            key
            for key, value in leaves(raw)
            if isinstance(value, int) and abs(value) > sys.float_info.max
        )
        key = str(getattr(error, "full_key", None) or next(huge, "a setting"))
        kind = _WORDS.get(all_keys(Config, "").get(key), "")  # of an element of a list ""
        if not kind:
            rule = f"settings in {source} must have the right type"
            raise InputError(rule, f"{key}: {str(error).splitlines()[0]}", "correct it") from error
        raise InputError(
            f"{key} in {source} is {kind}", repr(_value_of(raw, key)), f"type {key}=<{kind}>"
        ) from error


def _value_of(raw: Raw, full: str) -> object:
    value: Any = raw
    for step in full.split("."):
        value = value.get(step) if isinstance(value, dict) else value
    return value
