"""The settings page: every key that a user may set, what it means, its default and what is allowed. `python tests/settings.py`
rewrites it.

Owns docs/settings.md, which is made from the schema: the docstrings of its blocks, their fields, and the tables of allowed
values. Promises that the same schema gives the same page.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args, get_origin

from ssp.config import own
from ssp.config import role as role_schema
from ssp.config.fields import INF, choices, ends, hints, is_text, plain, takes_own
from ssp.config.role import RoleConfig
from ssp.config.schema import PLAYERS, PRESETS, Config
from ssp.game import protocols, rewards
from ssp.game.referee.rules import RULES
from ssp.game.rewards import proposer
from ssp.record.runfolder import MAY_CHANGE

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
ROLES = ("defaults", "proposer", "solver")
ROLE = "ROLE"
"""Stands for each of them."""

TYPES = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    list[str]: "list of texts",
    dict[str, Any]: "options",
}
GROUPS = {
    "trust_region": "Losses that use the behaviour log-probs, as a staleness bound above 0 needs (law 5).",
    "distributions": "KL estimators over whole distributions, which rollouts do not keep: they work in the loss only.",
}
"""What names say of themselves (`ssp.config.own.SAID`) that rules go by."""

NAMED = {"players": f"{ROLE}s", "max_staleness": f"max_staleness.{ROLE}"}
"""Fields that hold a number of each role → how it is typed."""
NUMBERS = {"ROLEs": PLAYERS, "ROLE": 0}
"""Their defaults."""

NAMES: dict[str, tuple[str, ...]] = {
    "resume": ("never", "auto", "step:N"),
    "protocol": tuple(protocols.names()),
    "proposer.reward": tuple(proposer.names()),
    "solver.reward": tuple(rewards.names()),
    "referee.rules": tuple(RULES),
}
"""Built-in names of keys that are no choice of the tables."""

BESIDE = {
    "resume": "a run folder",
    "protocol": "a file",
    "proposer.reward": "your own code",
    "solver.reward": "your own code",
}
"""What such a key takes beside them."""

HEAD = """Every key of a configuration: what it means, its type, its default, what is allowed. To set one, type `key=value` behind a
command (`ssp train --config quickstart game.attempts=4`), or nest it in a file and name that (`--config FILE`).
`ssp train --dry-run` prints every key as a run would have it.

`ROLE` stands for each role of the game, `proposer` and `solver` in those that ship, or for `defaults`, from which all inherit. Of
several values the last of these wins: the default below, the game's own, the file's `defaults`, the file's role block, a typed
`defaults.*`, a typed `proposer.*` or `solver.*`. A key that does not exist, is out of its range or contradicts another key is refused, all of them in one message. A key that another one makes idle is
accepted. The shipped configurations (`configs/`) set other values than the defaults here. A resumed run may change {anew}; other
keys stay as they were.

A name that a text uses and that has no row cannot be set: it is a constant, and "Fixed" below the text has its value.

"Your own code" is a place such as `my_file.py:name` ([own](own.md)). [CONTRIBUTING](../CONTRIBUTING.md) has the laws that are named
by a number. `python tests/settings.py` makes this page from `ssp/config/`."""
VARIABLES = (
    (
        "`SSP_HOME`",
        "the folder from which relative paths of a configuration, and `runs/`, count; default: the working folder",
    ),
    (
        "`SSP_CACHE`",
        "the cache folder: downloads (`hub/`), generated worlds, tiny policies, stamps of indexes, answers of the web; "
        "default: `$XDG_CACHE_HOME/ssp`, else `~/.cache/ssp`. What was made is made again when it is gone",
    ),
    ("`SSP_JUDGE_KEY`, `SSP_ENGINE_KEY`", "the keys of `judge.url` and of an engine's server"),
    ("`RAY_ADDRESS`", "a Ray cluster to join; without it a run starts a local one"),
    ("`NNODES`, `RANK`, `MASTER_ADDR`, `MASTER_PORT`, `NODE_PORTS`, `RAY_TMPDIR`", "[several nodes](cluster.md)"),
    ("`HF_ENDPOINT`, `HF_TOKEN`", "[downloads](data.md#downloading)"),
    ("`SERPER_API_KEY`, `SERPAPI_API_KEY`, `GOOGLE_API_KEY`", "[engines of the web](search.md#online-engines)"),
    ("`WANDB_PROJECT`, `WANDB_ENTITY`, `WANDB_API_KEY`", "[Weights & Biases](watch.md#weights--biases)"),
    ("`SEARCH_IP` and others of SSP", "[migration](migration.md#environment-variables)"),
)
"""Environment variables, and what each is."""
WIDTH = 125
EARLY = 110
"""A line of a docstring that had room for another word up to here ends a paragraph, if it ends a sentence."""


@dataclass(frozen=True)
class Block:
    """A class of the schema and where it stands: "game", "ROLE.engine", "data.eval[]" (an element of a list), or ""."""

    path: str
    schema: type

    @property
    def keys(self) -> dict[str, Any]:
        """Key → type, with what it allows."""
        start = f"{self.path}." if self.path else ""
        return {
            start + NAMED.get(name, name): get_args(hint)[1] if name in NAMED else hint
            for name, hint in hints(self.schema).items()
            if not is_dataclass(hint) and name != "blocks"
        }

    @property
    def text(self) -> str:
        return cleandoc(self.schema.__doc__ or "")


def blocks(schema: type = Config, path: str = "") -> Iterator[Block]:
    """Every block, in the schema's order; those of the roles once, and last."""
    yield Block(path, schema)
    for name, inside in hints(schema).items():
        below = f"{path}.{name}".lstrip(".")
        if get_origin(inside) is list and is_dataclass(get_args(inside)[0]):
            yield from blocks(get_args(inside)[0], f"{below}[]")
        elif is_dataclass(inside) and inside is not RoleConfig:
            yield from blocks(inside, below)
    if schema is Config:
        yield from blocks(RoleConfig, ROLE)


def unexplained() -> list[str]:
    """Keys that the docstring of their block does not name."""
    return [
        key
        for block in blocks()
        for key in block.keys
        if f"`{key.removesuffix('.ROLE').rpartition('.')[2]}`" not in block.text.replace("`/`", "` / `")
    ]


def page() -> str:
    found, start = list(blocks()), "# Settings"
    there = [item.name for item in fields(Config) if item.name in MAY_CHANGE]
    anew = ", ".join(f"`{name}`" if name in ("steps", "resume") else f"`{name}.*`" for name in there)
    index = filled(" · ".join(f"[{heading(block)}](#{anchor(heading(block))})" for block in found))
    parts = [start, prose(HEAD.format(anew=anew)), index, presets(), groups(), variables()]
    parts += [section(block) for block in found]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def heading(block: Block) -> str:
    return f"`{block.path}`" if block.path else "The run as a whole"


def anchor(title: str) -> str:
    """What a heading is called in links."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def presets() -> str:
    bound = f"schedule.max_staleness.{ROLE}"
    rows = [(f"`{name}`", str(number), str(number + 1)) for name, number in PRESETS.items()]
    head = ("`schedule.preset`", f"`{bound}`", "rounds under way at most")
    text = (
        "`schedule.preset` sets the staleness bound of every role (`schedule.max_staleness.*`) and nothing else. Beside another "
        "value of one of them it is refused. Without a preset all are 0."
    )
    return f"## Presets\n\n{filled(text)}\n\n{table(head, rows)}"


def groups() -> str:
    """Values that rules treat alike."""
    source = Path(role_schema.__file__).read_text(encoding="utf-8")
    rows = [
        (listed(tuple(name for name, said in own.SAID.items() if said.get(key))), remark)
        for key, remark in GROUPS.items()
    ]
    rows.append((listed(role_schema.ACTED), remarks(source)["ACTED"]))
    return f"## Values that belong together\n\n{table(('values', 'what they are'), rows)}"


def variables() -> str:
    return f"## Environment variables\n\n{table(('variable', 'what it is'), list(VARIABLES))}"


def remarks(source: str) -> dict[str, str]:
    """Name → the string that follows its assignment."""
    body = ast.parse(source).body
    found = {}
    for node, after in zip(body, body[1:], strict=False):
        if isinstance(node, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[ast.unparse(node.targets[0])] = str(after.value.value)
    return found


def section(block: Block) -> str:
    """A block: its docstring, and a row a key."""
    defaults, names = instance(block.schema), [key.rpartition(".")[2] for key in block.keys]
    rows = []
    for key, type_ in block.keys.items():
        name = key.rpartition(".")[2]
        default = shown(NUMBERS[name] if name in NUMBERS else getattr(defaults, name))
        if key.startswith(f"{ROLE}.") and "[]" not in key:
            default += of_roles(key.partition(".")[2], getattr(defaults, name))
        inside = plain(type_)
        element = get_args(inside)[0] if get_origin(inside) is list else None
        word = "text" if is_text(type_) else TYPES.get(inside, "list of blocks")
        kind = "list of blocks" if is_dataclass(element) else word
        rows.append((f"`{key}`", kind, default, allowed(key, type_)))
    text = prose(block.text, names) + fixed(block)
    return f"## {heading(block)}\n\n{text}\n{table(('key', 'type', 'default', 'allowed'), rows)}"


def fixed(block: Block) -> str:
    """The constants that the block's docstring names, with their values; "" where it names none."""
    constants = [name for name, value in vars(block.schema).items() if is_constant(block.schema, name, value)]
    named = [name for name in constants if f"`{name}`" in block.text]
    found = ", ".join(f"`{name}` {constant(getattr(block.schema, name))}" for name in named)
    return f"\n{filled(f'Fixed: {found}.')}\n" if found else ""


def is_constant(schema: type, name: str, value: Any) -> bool:
    """Whether it is the same for everybody: a value of the class that is no setting."""
    plain_value = isinstance(value, int | float | str | tuple)
    return plain_value and not name.startswith("_") and name not in hints(schema)


def constant(value: Any) -> str:
    return listed(tuple(map(str, value))) if isinstance(value, tuple) else str(flow(value))


def instance(schema: type) -> Any:
    """A block with its defaults; in the whole configuration those of the roles may differ (`own`)."""
    missing = [item.name for item in fields(schema) if item.default is MISSING and item.default_factory is MISSING]
    assert not missing, f"{schema.__name__} has no default for {missing}"
    return schema()


def of_roles(key: str, default: Any) -> str:
    """Defaults of the roles where they are others than their block's: the name of each, and its."""
    found = ""
    for role in ROLES:
        value: Any = getattr(Config(), role)
        for step in key.split("."):
            value = getattr(value, step)
        found += f"; {role}: {shown(value)}" if value != default else ""
    return found


def allowed(key: str, type_: Any) -> str:
    """What a key takes, in words; "" where its text says it."""
    if key.startswith(f"{ROLE}."):
        path = key.partition(".")[2]
        each = [f"{role}: {names}" for role in ROLES if (names := known(f"{role}.{path}"))]
        if each:
            return "; ".join(each)
    if names := known(key):
        return names
    if choices(type_):
        return listed(choices(type_)) + (", your own code" if takes_own(type_) else "")
    within = ends(type_)
    if within is None:
        return "`true`, `false`" if type_ is bool else ""
    if within.low == -INF:
        return "any finite number"
    low, high = number(within.low), number(within.high)
    return f"at least {low}" if within.high == INF else f"{low} to {high}"


def known(key: str) -> str:
    """Names that the schema does not say; "" where there are none."""
    return listed(NAMES[key]) + (f", {BESIDE[key]}" if key in BESIDE else "") if key in NAMES else ""


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" if name else '`""`' for name in names)


def number(value: float) -> str:
    """A number as it is typed; the end of what 64 bits hold by its power."""
    return "2^63 - 1" if value == 2**63 - 1 else str(value) if isinstance(value, int) else f"{value:g}"


def shown(value: Any) -> str:
    if isinstance(value, list):
        return f"`[{', '.join(flow(item) for item in value)}]`"
    return f"`{flow(value)}`"


def flow(value: Any) -> str:
    """A value in one line of YAML."""
    if is_dataclass(value):
        return "{" + ", ".join(f"{item.name}: {flow(getattr(value, item.name))}" for item in fields(value)) + "}"
    if isinstance(value, str):
        return value or '""'
    return json.dumps(value) if isinstance(value, bool | dict) else number(value)


def prose(text: str, keys: Collection[str] = ()) -> str:
    """A docstring as Markdown: pages as links, a paragraph wherever the docstring begins a line early, lists of `keys`."""
    paragraphs: list[list[str]] = [[]]
    lines = text.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        paragraphs[-1].append(line)
        early = line.endswith(".") and len(line) + 1 + len((after.split() or [""])[0]) < EARLY
        if not line or early:
            paragraphs.append([])
    joined = [re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", " ".join(lines).strip()) for lines in paragraphs]
    return "\n\n".join(items(paragraph, keys) for paragraph in joined if paragraph) + "\n"


def items(paragraph: str, keys: Collection[str]) -> str:
    """A paragraph as a list, where several of its sentences begin with a key; what goes before the first one stays above."""
    found = [
        one.start() for one in re.finditer(r"`(\w+)`", paragraph) if one[1] in keys and begins(paragraph, one.start())
    ]
    if len(found) < 2:
        return filled(paragraph)
    parts = [
        paragraph[i:j].strip().rstrip(";.") + "." for i, j in zip(found, [*found[1:], len(paragraph)], strict=True)
    ]
    above = [filled(paragraph[: found[0]].strip())] if found[0] else []
    return "\n\n".join([*above, "\n".join(filled(f"- {part}", "  ") for part in parts)])


def begins(text: str, at: int) -> bool:
    """Whether a sentence begins there."""
    return at == 0 or text[at - 2 : at] in (". ", "; ") and text[:at].count("(") == text[:at].count(")")


def filled(text: str, indent: str = "") -> str:
    """In lines of a page's length, code spans whole."""
    whole = re.sub(r"`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    return textwrap.fill(
        whole, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    ).replace("\0", " ")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(
        f"{PAGE}: {sum(len(block.keys) for block in blocks())} keys; not explained: {', '.join(unexplained()) or 'none'}"
    )
