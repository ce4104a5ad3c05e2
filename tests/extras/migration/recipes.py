"""Recipes beside their systems' effective configurations: `python tests/extras/migration/recipes.py` prints what differs.

A system's configuration is what its file and code say (`launch_defaults.txt`) under what its launch script sets
(`launch_scripts.txt`), translated as `ssp migrate` does. The rows of docs/recipes.md under "What stays different" have to
be these differences, each with its reason (test_recipe_values.py).
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from ssp.config.load import dotted  # noqa: E402
from ssp.extras.migration import systems, values  # noqa: E402
from ssp.extras.migration.script import Override  # noqa: E402
from ssp.selfplay.settings import load  # noqa: E402

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "recipes.md"
MISSING = "?"


def read(name: str) -> dict[str, list[Override]]:
    """A file of facts: its sources, each with what it sets."""
    found: dict[str, list[Override]] = {}
    source = ""
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            key, _, value = line.strip().partition("=")
            found[source].append(Override(key, None if value == MISSING else value))
        elif not line.startswith("#"):
            source = line
            found[source] = []
    return found


PUBLISHED = read("launch_scripts.txt")
DEFAULTS = read("launch_defaults.txt")

SEARCH_R1 = "PeterGriffinJin/Search-R1@a14dc3a:scripts/nq_hotpotqa/v0.3/train_{}_format.sh"
SCRIPTS = {
    **{f"search-r1-qwen2.5-{size}-{kind}": SEARCH_R1.format(kind) for size in ("3b", "7b") for kind in ("grpo", "ppo")},
    "ema-pg-qwen2.5-3b": "LunjunZhang/ema-pg@f9b9776:search/train_grpo_ema_pg.sh",
    "research-qwen2.5-7b": "Agent-RL/ReSearch@4bdb872:scripts/train/train.sh",
    "research-qwen2.5-32b": "Agent-RL/ReSearch@4bdb872:scripts/train/train_multi_node.sh",
    **{f"ssrl-{model}": "TsinghuaC3I/SSRL@3009f21:examples/ssrl/example.sh" for model in ("llama3.2-3b", "qwen2.5-7b")},
    **{
        f"ssp-{model}": "Alibaba-Quark/SSP@b4797e1:examples/train_ssp.sh"
        for model in ("qwen2.5-7b", "qwen3-8b", "llama3.1-8b")
    },
}
"""Recipe → the script that it follows."""

PLACES = re.compile(
    r"(data|run|telemetry|placement)\.|retriever\.url|\w+\.(model|template|engine\..*|learner\.(offload|zero|token_budget))$"
)
"""Hardware, logging and what lies where: everybody's own."""


@functools.cache
def recipe(name: str) -> dict[str, object]:
    return dotted(load(name))


def rows(source: str) -> list[values.Translation]:
    """What `ssp migrate` makes of a published script."""
    kind = systems.system(PUBLISHED[source])
    return values.rows(PUBLISHED[source], kind, recipe(systems.recipe(kind, PUBLISHED[source])))


def differences(name: str) -> dict[str, tuple[object, object]]:
    """Setting → (theirs, ours), of a recipe."""
    source = SCRIPTS[name]
    below = next(given for at, given in DEFAULTS.items() if at.partition(":")[0] == source.partition(":")[0])
    effective = {o.key: o for o in [*below, *PUBLISHED[source]] if o.value is not None}
    overrides, ours = list(effective.values()), recipe(name)
    wanted: dict[str, object] = {}
    for key, value in values.merged(values.rows(overrides, systems.system(overrides), ours)).items():
        roles = ("proposer", "solver") if key.startswith("defaults.") else ("",)
        wanted |= {key.replace("defaults.", f"{role}.", 1): value for role in roles}
    return {
        key: (value, ours.get(key))
        for key, value in wanted.items()
        if not PLACES.match(key) and not _equal(value, ours.get(key))
    }


def _equal(theirs: object, ours: object) -> bool:
    if isinstance(theirs, int | float) and isinstance(ours, int | float) and not isinstance(theirs, bool):
        return abs(theirs - ours) <= 1e-9 * max(1.0, abs(theirs))
    return theirs == ours


def told() -> dict[tuple[str, str], tuple[str, str]]:
    """The page's rows: (recipe, setting) → (theirs, here). A recipe may be the beginning of several names, with `*`."""
    section = PAGE.read_text(encoding="utf-8").partition("## What stays different\n")[2].partition("\n## ")[0]
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for line in section.splitlines():
        if cells := re.fullmatch(r"\|(`.+`)\|`(.+?)`\|(.+?)\|(.+?)\|(.+)\|", line):
            for pattern in re.findall(r"`(.+?)`", cells[1]):
                for name in (
                    one for one in SCRIPTS if re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*"), one)
                ):
                    found[name, cells[2]] = (cells[3], cells[4])
    return found


def main() -> int:
    for name in SCRIPTS:
        for key, (theirs, ours) in differences(name).items():
            print(f"|`{name}`|`{key}`|{theirs}|{ours}|")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
