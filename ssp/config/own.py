"""A user's own code by its place: `my_file.py:name`, or `package.module:name` for what Python can
import.

Owns how rewards, estimators, losses and KLs from outside the package are sealed, located and
recorded. Workers find a file wherever they run, since `locate` makes it absolute. Code is sealed
where the configuration of a run that is only looked at names it; sealed code is never run."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

from ssp.base.errors import hold
from ssp.base.places import find, is_file_place, is_own
from ssp.base.services import SEALED as SEALED
from ssp.base.services import sealed as sealed
from ssp.config.schema import Config

KEYS = ("algorithm", "loss", "reward", "agent", "kl.kind")
"""Settings of a role block, or of a block in it, that may name a place."""


def seal(block: dict[str, Any]) -> None:
    """Seal the places in a role block as it was read. A name that is built in has neither a colon
    nor a point."""

    def sealed_place(value: Any) -> Any:
        return f"{SEALED}{value}" if ":" in str(value) or "." in str(value) else value

    def sealed_tool(tool: Any) -> Any:
        if isinstance(tool, dict):
            return {**tool, "mcp": sealed_place(tool.get("mcp", ""))}
        return sealed_place(tool)

    for key in KEYS:
        outer, _, name = key.rpartition(".")
        holder = block.get(outer) if outer else block
        if isinstance(holder, dict) and isinstance(holder.get(name), str):
            holder[name] = sealed_place(holder[name])
    tools = block.get("tools")
    if isinstance(tools, list):
        block["tools"] = [sealed_tool(tool) for tool in tools]
    options = block.get("reward_options")
    if isinstance(options, dict) and ":" in str(options.get("guide", "")):
        options["guide"] = f"{SEALED}{options['guide']}"


def says(value: str, attribute: str) -> Any:
    """What a user's own code says of itself, by the attribute of what stands at its place. False
    where it says nothing, for a name that is built in, and for sealed code, which is not asked."""
    if not is_own(value) or sealed(value):
        return False
    code = find(value, f"your own {value}", f"{attribute} = True")
    return getattr(code, attribute, False)


def title(value: str) -> str:
    """A place without folders, as it is recorded: the same wherever the file lies."""
    place, _, name = value.partition(":")
    if is_file_place(place):
        place = Path(place).name
    return f"{place}:{name}"


def locate(cfg: Config) -> None:
    """Make every file among the places of `cfg` absolute: workers may have another working
    folder."""
    cfg.game.kind = _located(cfg.game.kind)
    for block in (cfg.defaults, *cfg.blocks.values()):
        for key in KEYS:
            outer, _, name = key.rpartition(".")
            holder = getattr(block, outer) if outer else block
            setattr(holder, name, _located(getattr(holder, name)))
        block.tools = [_located(t) if isinstance(t, str) else t for t in block.tools]
        if block.guide:
            block.reward_options = {**block.reward_options, "guide": _located(block.guide)}
    if cfg.judge.scores and cfg.judge.format != "score":  # a rubric
        cfg.judge.format = str(Path(cfg.judge.format).expanduser().absolute())


def _located(value: str) -> str:
    place, colon, name = value.partition(":")
    if not colon or not is_file_place(place):
        return value
    return f"{Path(place).expanduser().absolute()}:{name}"


def prints(cfg: Config) -> dict[str, str]:
    """Setting → the place's title, and the first 16 hex digits of a sha256, for every place that
    `cfg` names: of the file, or of those that a program's command names, and for a protocol's file.
    Sealed code has none."""
    named = {"game.kind": cfg.game.kind}
    for role in cfg.roles:
        block = cfg.block(role)
        for key in KEYS:
            named[f"{role}.{key}"] = attrgetter(key)(block)
        for number, tool in enumerate(block.tools):
            named[f"{role}.tools[{number}]"] = str(tool)
        named[f"{role}.reward_options.guide"] = block.guide
    marks = {}
    for key, value in named.items():
        if is_own(value) and not sealed(value) and not value.startswith("ssp."):
            marks[key] = _marked(title(value), _files(value))
    protocol = Path(cfg.protocol).expanduser()
    if protocol.suffix in (".yaml", ".yml"):
        marks["protocol"] = _marked(protocol.name, [protocol])
    return marks


def _marked(title: str, files: Sequence[Path]) -> str:
    """A title, and the first 16 hex digits of the SHA-256 of those files that are there, if any."""
    there = [path.read_bytes() for path in files if path.is_file()]
    if not there:
        return title
    return f"{title} {hashlib.sha256(b''.join(there)).hexdigest()[:16]}"


def check_same(
    now: Mapping[str, str], recorded: Mapping[str, str], typed: Sequence[str] = ()
) -> None:
    """InputError for code that differs from what a checkpoint has `recorded` of it. `typed`:
    settings that somebody typed, who means the code of today."""
    different = []
    for key, was in sorted(recorded.items()):
        if key in now and not _typed(key, typed) and not f"{now[key]} ".startswith(f"{was} "):
            different.append(f"{key} is {now[key]}, and was {was}")
    rule = (
        "code that a run's own config.yaml names is the code that its checkpoint was trained with"
    )
    step = (
        "restore that code, or type the setting, such as solver.agent=my_agent.py:solve, which"
        " takes today's"
    )
    hold(not different, rule, "; ".join(different), step)


def _typed(key: str, typed: Sequence[str]) -> bool:
    """Whether somebody typed this setting, the block that it lies in, or either for all roles."""
    setting, _, _ = key.partition("[")
    role, _, _ = setting.partition(".")
    names = [*typed, *(name.replace("defaults", role) for name in typed)]
    return any(f"{setting}.".startswith(f"{name}.") for name in names)


def _files(value: str) -> list[Path]:
    """The files behind a place: its own, a module's, or those among the words of a program's
    command."""
    place, _, rest = value.partition(":")
    if place in ("command", "serve", "mcp"):
        words = shlex.split(rest.removeprefix("stdio:"))
        return [path for path in map(Path, words) if path.is_file()]
    if is_file_place(place):
        return [Path(place).expanduser()]
    with suppress(ImportError, ValueError):
        spec = find_spec(place)
        return [Path(spec.origin)] if spec is not None and spec.origin else []
    return []


def mark(cfg: Config) -> dict[str, dict[str, str]]:
    """What a checkpoint keeps of the code that trained it; nothing where all of it is the
    package's."""
    code = prints(cfg)
    return {"own": code} if code else {}
