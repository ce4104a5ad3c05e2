"""From a config name or file and `key=value` overrides to one checked `Config`.

Owns reading, merging and interpolation. Promises this order, later wins: schema, the game's own
settings, the file's `defaults`, the file's role block, `defaults.x=` on the command line, a role's
`ROLE.x=` on the command line; so what is typed beats what is written, and a role beats its defaults
in the same place. Options go with the reward that they stand beside: who names another reward says
what its options are. Refuses to know which values make sense (`ssp.config.reading`)."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ssp.base.errors import InputError, hold, holding
from ssp.base.gamespec import GameSpec
from ssp.base.places import is_own
from ssp.config import games, gone, keys, own, reading
from ssp.config.cluster import PlacementConfig
from ssp.config.fields import hints, is_text, leaves, merge
from ssp.config.keys import Place
from ssp.config.rules import Rule
from ssp.config.schema import PRESETS, Config

Raw = dict[str, Any]
_SUFFIXES = (".yaml", ".yml")
_HERE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")
_COMMAND_LINE = "the command line"
DEEPEST = 16
"""Words in a key; no block lies so deep, and what is read is walked by functions that call
themselves."""
FOREIGN = 12
"""Keys of another system that one message names."""


def load(
    name_or_file: str,
    overrides: Sequence[str] = (),
    trusted: bool = True,
    combinations: Sequence[Rule] = (),
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
    spec = _game(file, typed)
    roles = spec.role_blocks
    game = _parse_overrides([f"{key}={value}" for key, value in spec.settings.items()])
    layers = {"the game": game, str(path): file, _COMMAND_LINE: typed}
    _refuse_foreign(file, roles, str(path))
    _refuse_foreign(typed, roles, _COMMAND_LINE)

    merged: Raw = {}
    for layer in layers.values():
        merged = merge(merged, layer)
    for role in roles:
        merged[role] = _inherit(role, list(layers.values()))
    merged = _interpolated(merged, roles)
    _expand_preset(merged, roles)

    def written(place: Place) -> tuple[Place, str]:
        inherited = ("defaults", *place[1:]) if place[0] in roles else place
        for source, raw in reversed(layers.items()):
            for one in (place, inherited):
                if keys.has(raw, one):
                    return one, source
        return place, str(path)

    return reading.check(merged, roles, written, combinations)


def checked(cfg: Config) -> Config:
    """`cfg` again, when each of its values is one that `load` takes. InputError as in `load`."""
    return reading.check(container(cfg), tuple(cfg.blocks), lambda place: (place, "a setting"), ())


def stated(name_or_file: str, overrides: Sequence[str] = ()) -> dict[str, object]:
    """Dotted keys that the file or the overrides set, with the values as written. InputError as in
    `load`."""
    return dict(leaves(merge(_read(find(name_or_file)), _parse_overrides(overrides))))


def layered(name_or_file: str, overrides: Sequence[str] = ()) -> Raw:
    """What a file has to hold so that `load` of it gives what `load` of this file and these
    overrides gives."""
    raw, typed = _read(find(name_or_file)), _parse_overrides(overrides)
    for name in _blocks(raw):
        _change_reward(raw[name], name, typed.get(name, {}))
        if name != "defaults":
            _drop(raw[name], typed.get("defaults", {}))
    return merge(raw, typed)


def _change_reward(block: Raw, name: str, above: Raw) -> None:
    """Leave the options of a reward behind where `above`, the block `name`, has another one.
    InputError where it does not say what comes in their place."""
    before = block.get("reward")
    after = above.get("reward", before)
    if after == before or not block.get("reward_options"):
        return
    left = block.pop("reward_options")
    rule = "options go with the reward that they stand beside"
    value = f"{name}.reward={after}, and reward_options of another one: {left}"
    key = f"{name}.reward_options"
    step = f"set {key}={{}} as well for none, or {key}.NAME=VALUE to those of {after}"
    hold("reward_options" in above, rule, value, step)


def _drop(block: Raw, above: Raw) -> None:
    """Take out of a role's block what `above` says for all roles."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(block.get(key), dict):
            _drop(block[key], value)
        else:
            block.pop(key, None)


def container(cfg: Config) -> Raw:
    """The configuration as a file has it: plain data, a block beside the others for each role."""
    raw = asdict(cfg)
    raw |= raw.pop("blocks")
    place: Raw = {}
    for name, value in raw["placement"].items():
        if name == "players":
            place |= {f"{role}s": count for role, count in value.items()}
        else:
            place[name] = value
    raw["placement"] = place
    return raw


def dotted(cfg: Config) -> dict[str, Any]:
    """Every key and value of a configuration, by its full name."""
    return dict(leaves(container(cfg)))


def to_yaml(cfg: Config) -> str:
    """The resolved configuration as YAML; `load` of it gives an equal `Config`."""
    return OmegaConf.to_yaml(OmegaConf.create(container(cfg)))


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
    rule = f"{path} must be a readable YAML file"
    with holding(odd, rule, lambda error: " ".join(str(error).split()), "correct the file"):
        loaded = OmegaConf.to_container(OmegaConf.load(path))
    rule = f"{path} must hold keys and values"
    kind = f"a {type(loaded).__name__}"
    hold(isinstance(loaded, dict), rule, kind, "write `key: value` lines")
    return cast(Raw, loaded)


def _seal(file: Raw, path: Path, typed: Raw) -> None:
    """Take from a file that nobody vouches for what it may not do: name code that runs, name whom
    keys go to. InputError where it reads the environment."""
    rule = "the config.yaml of a run holds plain values"
    for key, value in leaves(file):
        where = f"an interpolation in {key}, in {path}"
        hold("${" not in f"{key} {value}", rule, where, "write its value there")
    for name in _blocks(file):
        own.seal(file[name])
        _seal_address(file[name].get("engine"))
    game = file.get("game")
    if isinstance(game, dict) and is_own(str(game.get("kind"))):
        game["kind"] = games.seal(game["kind"], path.parent)
    _seal_address(file.get("judge"))
    online = keys.value(merge(file, typed), ("retriever", "online", "engine"))
    if online:  # whose key goes to that address
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
    for text in overrides:
        key, equals, value = text.partition("=")
        steps = key.strip().split(".")
        rule = "a setting is typed as key=value"
        typed = equals and all(steps) and len(steps) <= DEEPEST
        hold(typed, rule, text, "write for example steps=20 (no spaces around =)")

        leaf = _parsed(key, steps, value)
        node = tree
        for step in steps[:-1]:
            node = node.setdefault(step, {})
            rule = "a key is a block or a value, not both"
            hold(isinstance(node, dict), rule, text, f"leave one of them out: {key}")
        last = steps[-1]
        if isinstance(leaf, dict) and isinstance(node.get(last), dict):
            leaf = merge(node[last], leaf)
        node[last] = leaf
    return tree


def _parsed(key: str, steps: Sequence[str], value: str) -> Any:
    """The value of a typed setting, read as YAML. A setting that takes a text keeps the words as they
    were typed."""
    odd = (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError)
    rule = f"the value of {key} must be YAML"
    with holding(odd, rule, lambda _: value, "quote it: 'key=\"text\"'"):
        parsed = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={value}"]))
    leaf = cast(Raw, parsed)["value"]
    if leaf is None:
        return None if value.strip() else ""
    roles = () if keys.is_fixed(steps[0]) else (steps[0],)
    words = is_text(keys.hint(steps, roles)) and not value.lstrip().startswith(("{", "["))
    if words and not isinstance(leaf, str):
        return value.strip()  # 007, on and step: are words too
    return leaf


def _blocks(raw: Raw) -> list[str]:
    """Names of the blocks in which settings of roles stand, `defaults` among them."""
    names = [name for name in raw if name == "defaults" or not keys.is_fixed(name)]
    return [name for name in names if isinstance(raw[name], dict)]


def _game(file: Raw, typed: Raw) -> GameSpec:
    """The game that these settings name. InputError where one of its roles is called as a key."""
    game = _interpolated({"game": {}} | merge(file, typed))["game"]
    named = game if isinstance(game, dict) else {}
    kind, questions = named.get("kind", ""), named.get("questions", "proposer")
    spec = games.find(games.kind(str(kind), str(questions)))
    rule = "a role of a game has a name that is no key of the configuration yet"
    for role in spec.role_blocks:
        free = not keys.is_fixed(role) and f"{role}s" not in hints(PlacementConfig)
        hold(free, rule, f"{role} in game.kind={kind}", "give the role another name")
    return spec


def _inherit(role: str, layers: Sequence[Raw]) -> Any:
    """The role's block in the order that the module's docstring promises."""
    block: Raw = {}
    for layer in layers:
        for name in ("defaults", role):
            above = layer.get(name, {})
            if not isinstance(above, dict):
                return above
            _change_reward(block, name, above)
            block = merge(block, above)
    return block


def _interpolated(raw: Raw, roles: Sequence[str] = ()) -> Raw:
    """Settings with the values that interpolations stand for, which may name any key."""
    if not any("${" in f"{value}" for _, value in leaves(raw)):
        return raw
    below = container(Config())
    below |= {role: below["defaults"] for role in roles}
    try:
        whole = OmegaConf.to_container(OmegaConf.create(merge(below, raw)), resolve=True)
    except OmegaConfBaseException as error:
        key, said = error.full_key or "a setting", str(error).splitlines()[0]
        raise InputError("an interpolation has a value", f"{key}: {said}", "correct it") from error
    return _only(raw, cast(Raw, whole))


def _only(raw: Raw, whole: Raw) -> Raw:
    """What `whole` says of the keys of `raw`."""
    kept: Raw = {}
    for key, value in raw.items():
        kept[key] = whole[key]
        if isinstance(value, dict) and isinstance(whole[key], dict):
            kept[key] = _only(value, whole[key])
    return kept


def _expand_preset(raw: Raw, roles: Sequence[str]) -> None:
    """Write the bounds of `schedule.preset` into the settings; InputError when a bound that is
    there says something else."""
    preset = keys.value(raw, ("schedule", "preset"))
    bounds = keys.value(raw, ("schedule", "max_staleness")) or {}
    if not isinstance(preset, str) or preset not in PRESETS or not isinstance(bounds, dict):
        return
    stands = PRESETS[preset]
    step = "set the preset or the bounds, not both"
    for role in roles:
        key = f"schedule.max_staleness.{role}"
        bound = bounds.get(role, stands)
        rule = f"schedule.preset={preset} stands for {key}={stands}"
        hold(f"{bound}" == f"{stands}", rule, f"{key}={bound}", step)
    raw["schedule"]["max_staleness"] = bounds | dict.fromkeys(roles, stands)


def _refuse_foreign(raw: Raw, roles: tuple[str, ...], source: str) -> None:
    """Keys of the reference systems, and settings of ours that are gone, are named all at once,
    with what replaces them."""
    known = keys.all_keys(roles)
    given = dict(leaves(raw))
    refused = [key for key in given if key not in known and gone.word(key)]
    values = [f"{key}={value}" for key, value in given.items() if key in known]
    refused += [value for value in values if gone.row(value)]
    told = refused[:FOREIGN]
    more = ", ..." if len(refused) > FOREIGN else ""
    named = f"{', '.join(told)}{more} in {source}"
    hold(not refused, "every config key must exist", named, gone.advice(told))
