"""The settings page: every key that a user may set, what it means, its default and what is allowed. `python tests/settings.py`
rewrites it.

Owns docs/settings.md, which is made from the schema: the docstrings of its blocks, their fields, and the tables of allowed
values. Promises that the same schema gives the same page.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args, get_origin

from ssp.config.fields import INF, choices, ends, hints, is_block, is_text, plain, schema_of, takes_own
from ssp.config.role import RoleConfig
from ssp.config.schema import PLAYERS, PRESETS, Config
from ssp.game.referee.rules import RULES
from ssp.record.resumed import MAY_CHANGE

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
ROLES = ("defaults", "proposer", "solver")
ROLE = "ROLE"
"""Stands for each of them."""

TYPES = {
    int: "whole",
    float: "",
    bool: "`true`, `false`",
    str: "text",
    list[str]: "list of texts",
    dict[str, Any]: "options",
    dict[str, str]: "options",
}
"""What is said of a type: a number has its bounds beside it, and a text that is one of a few names has these in its place."""


NAMED = {"players": f"{ROLE}s", "max_staleness": f"max_staleness.{ROLE}"}
"""Fields that hold a number of each role → how it is typed."""
NUMBERS = {"ROLEs": PLAYERS, "ROLE": 0}
"""Their defaults."""

NAMES: dict[str, tuple[str, ...]] = {
    "resume": ("never", "auto", "step:N"),
    "referee.rules": tuple(RULES),
}
"""Built-in names of keys that are no choice of the tables."""

BESIDE = {"resume": "a run folder"}
"""What such a key takes beside them."""

HEAD = """Every key of a configuration: what it takes, its default, and what it means. Set one by `key=value` behind a command
(`ssp train --config quickstart game.attempts=4`), or nest it in a file (`--config FILE`). `ssp train --dry-run` prints every key as a
run would have it. The shipped `configs/` set other values.

`ROLE` stands for each role of the game (`proposer` and `solver` in those that ship), or for `defaults`, from which all inherit. The last
of these wins: the default below, the game's own, the file's `defaults`, the file's role block, a typed `defaults.*`, a typed
`proposer.*` or `solver.*`. All keys that do not exist, are out of range or contradict each other are refused in one message. A key that
another one makes idle is accepted. A resumed run may change {anew}.

"Fixed" has the constants that a text names. "Your own code" is a place such as `my_file.py:name` ([own](own.md)).
[CONTRIBUTING](../CONTRIBUTING.md) has the laws. `python tests/settings.py` makes this page from `ssp/config/`."""
VARIABLES = (
    (
        "`SSP_HOME`",
        "from where relative paths of a configuration, and `runs/`, count; default: the working folder",
    ),
    (
        "`SSP_CACHE`",
        "the cache: downloads (`hub/`), and what is made again when it is gone; default: `$XDG_CACHE_HOME/ssp`, else `~/.cache/ssp`",
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
MEANING = re.compile(r"(?:^|(?<=\. ))`(\w+)`: ")
"""Where a docstring begins to explain a key."""


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
    def paragraphs(self) -> list[str]:
        """Of its docstring, each in one line, with pages as links."""
        text = re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", cleandoc(self.schema.__doc__ or ""))
        return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]

    @property
    def about(self) -> str:
        """What its docstring says before it explains keys, as Markdown."""
        return "\n\n".join(filled(above) for above, _ in map(self.read, self.paragraphs) if above)

    @property
    def meanings(self) -> dict[str, str]:
        """Last part of a key → what its docstring says of it."""
        told: dict[str, str] = {}
        for paragraph in self.paragraphs:
            told.update(self.read(paragraph)[1])
        return told

    def read(self, paragraph: str) -> tuple[str, dict[str, str]]:
        """What stands before its first sentence of the form "`key`: meaning", and the meanings from there on."""
        names = {last(key) for key in self.keys}
        marks = [mark for mark in MEANING.finditer(paragraph) if mark[1] in names]
        bounds = [mark.start() for mark in marks] + [len(paragraph)]
        told = {
            mark[1]: paragraph[mark.end() : end].strip().rstrip(".")
            for mark, end in zip(marks, bounds[1:], strict=True)
        }
        return paragraph[: bounds[0]].strip(), told


def last(key: str) -> str:
    """The name of a key in its block."""
    return key.removesuffix(f".{ROLE}").rpartition(".")[2]


def blocks(schema: type = Config, path: str = "") -> Iterator[Block]:
    """Every block, in the schema's order; those of the roles once, and last."""
    yield Block(path, schema)
    for name, inside in hints(schema).items():
        below = f"{path}.{name}".lstrip(".")
        if get_origin(inside) is list and is_block(get_args(inside)[0]):
            yield from blocks(schema_of(get_args(inside)[0]), f"{below}[]")
        elif is_dataclass(inside) and inside is not RoleConfig:
            yield from blocks(inside, below)
    if schema is Config:
        yield from blocks(RoleConfig, ROLE)


def unexplained() -> list[str]:
    """Keys whose meaning the docstring of their block does not tell."""
    return [key for block in blocks() for key in block.keys if not block.meanings.get(last(key))]


def page() -> str:
    start = "# Settings"
    there = [item.name for item in fields(Config) if item.name in MAY_CHANGE]
    anew = ", ".join(f"`{name}`" if name in ("steps", "resume") else f"`{name}.*`" for name in there)
    head = [filled(" ".join(paragraph.split())) for paragraph in HEAD.format(anew=anew).split("\n\n")]
    parts = [start, *head, presets(), variables()]
    parts += [section(block, inside) for block, inside in chapters()]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def chapters() -> list[tuple[Block, list[Block]]]:
    """Blocks with a section of their own, and those whose rows stand there too: a block of which nothing is said above its rows
    stands with the run's keys, or with the role's. Elements of a list stand in the section of the list."""
    made: dict[str, tuple[Block, list[Block]]] = {}
    for block in blocks():
        if "[]" in block.path:
            above = block.path.partition("[]")[0].rpartition(".")[0]
            made[above if above in made else ROLE][1].append(block)
        elif block.path in ("", ROLE) or block.about or fixed(block):
            made[block.path] = (block, [])
        else:
            made[ROLE if block.path.startswith(ROLE) else ""][1].append(block)
    return list(made.values())


def heading(block: Block) -> str:
    return f"`{block.path}`" if block.path else "The run as a whole"


def presets() -> str:
    bound = f"schedule.max_staleness.{ROLE}"
    rows = [(f"`{name}`", str(number)) for name, number in PRESETS.items()]
    head = ("`schedule.preset`", f"`{bound}`")
    text = (
        "`schedule.preset` sets the staleness bound of every role, and nothing else. Beside another value of one of them it is "
        "refused. Without a preset all are 0. At most one round more than the bound is under way."
    )
    return f"## Presets\n\n{filled(text)}\n\n{table(head, rows)}"


def variables() -> str:
    return f"## Environment variables\n\n{table(('variable', 'what it is'), list(VARIABLES))}"


def section(block: Block, inside: list[Block]) -> str:
    """A block: what its docstring says of it, and a row a key; then the rows of the blocks `inside`."""
    rows = [row for one in (block, *inside) for row in rows_of(one)]
    above = [part for part in (f"## {heading(block)}", block.about if block.path else "", fixed(block)) if part]
    return "\n\n".join([*above, table(("key", "type", "default", "meaning"), rows)])


def rows_of(block: Block) -> list[tuple[str, ...]]:
    defaults, meanings = instance(block.schema), block.meanings
    rows: list[tuple[str, ...]] = []
    for key, type_ in block.keys.items():
        name = key.rpartition(".")[2]
        default = shown(NUMBERS[name] if name in NUMBERS else getattr(defaults, name))
        if key.startswith(f"{ROLE}.") and "[]" not in key:
            default += of_roles(key.partition(".")[2], getattr(defaults, name))
        rows.append((f"`{key}`", taken(key, type_), default, meanings.get(last(key), "")))
    return rows


def taken(key: str, type_: Any) -> str:
    """What a key takes: names or bounds where there are some, and its type where these do not say it."""
    inside = plain(type_)
    if get_origin(inside) is list and is_block(get_args(inside)[0]):
        return "list of blocks" if is_dataclass(get_args(inside)[0]) else "list of texts and blocks"
    word = "text" if is_text(type_) else TYPES[inside]
    within = allowed(key, type_)
    if word in ("", "text") and within:
        return within
    return ", ".join(filter(None, (word, within)))


def fixed(block: Block) -> str:
    """The constants that the block's docstring names, with their values; "" where it names none."""
    constants = [name for name, value in vars(block.schema).items() if is_constant(block.schema, name, value)]
    text = " ".join(block.paragraphs)
    named = [name for name in constants if f"`{name}`" in text]
    found = ", ".join(f"`{name}` {constant(getattr(block.schema, name))}" for name in named)
    return filled(f"Fixed: {found}.") if found else ""


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
    if key in NAMES:
        return listed(NAMES[key]) + (f", {BESIDE[key]}" if key in BESIDE else "")
    if choices(type_):
        return listed(choices(type_)) + (", your own code" if takes_own(type_) else "")
    within = ends(type_)
    if within is None:
        return ""
    if within.low == -INF:
        return "any finite number"
    low, high = number(within.low), number(within.high)
    return f"from {low}" if within.high == INF else f"{low} to {high}"


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" if name else '`""`' for name in names)


def number(value: float) -> str:
    """A number as it is typed; the end of what 64 bits hold by its power."""
    return "2^63 - 1" if value == 2**63 - 1 else str(value) if isinstance(value, int) else f"{value:g}"


def shown(value: Any) -> str:
    if isinstance(value, list):
        return f"`[{', '.join(flow(item) for item in value)}]`"
    return '`""`' if value == "" else flow(value)


def flow(value: Any) -> str:
    """A value in one line of YAML."""
    if is_dataclass(value):
        return "{" + ", ".join(f"{item.name}: {flow(getattr(value, item.name))}" for item in fields(value)) + "}"
    if isinstance(value, str):
        return value or '""'
    return json.dumps(value) if isinstance(value, bool | dict) else number(value)


def filled(text: str, indent: str = "") -> str:
    """In lines of a page's length, code spans whole."""
    whole = re.sub(r"`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    return textwrap.fill(
        whole, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    ).replace("\0", " ")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["|" + "|".join(cell.replace("|", "\\|") for cell in row) + "|" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|-" * len(head) + "|", *lines]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(
        f"{PAGE}: {sum(len(block.keys) for block in blocks())} keys; not explained: {', '.join(unexplained()) or 'none'}"
    )
