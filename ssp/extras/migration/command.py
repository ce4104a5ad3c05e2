"""`ssp migrate`: a launch script of a reference system, or its overrides, as a config of ours.

Owns the command line, the table and the config's file. Promises that the script is only read, that
each of its keys has a row, and that what is written loads: nothing is written otherwise, and no
file is replaced. Refuses to know what a value means (`values.py`)."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from launch.cli import Parser, writable
from ssp.base.errors import InputError, hold
from ssp.base.files import whole
from ssp.base.printable import printable, say
from ssp.config.load import dotted, layered
from ssp.extras.migration import script, sections, values
from ssp.extras.migration.systems import is_verls, parsed, recipe, system
from ssp.extras.migration.variables import environment
from ssp.selfplay.settings import load

ONLY = "trainer.val_only"
EVALUATED = re.compile(r"protocol$|retriever\.|(solver|defaults)\.(model$|limits\.|search\.)")
"""Settings that an evaluation reads."""

VERLS = """  This is verl's own script: no key in it is of SSP, Search-R1, EMA-PG, ReSearch or SSRL. Protocol, search and
  reward are the recipe's, and so is all else that the script does not say; name another recipe with --config."""
ABOUT = """The script is read, never run; its variables are filled in from its own lines alone. The settings lie over
the recipe of its system, or over --config, so that what the script leaves to its system's defaults is the recipe's."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, and write the config with --out. InputError for bad input, and for settings
    that do not load."""
    args, theirs = _arguments(sys.argv[1:] if argv is None else argv)
    overrides, env = _read(theirs)
    rule = "a launch script sets keys of a reference system"
    hold(overrides, rule, "none in this one", "give another")
    whose = system(overrides)
    name = args.config or recipe(whose, overrides)
    base = dotted(load(name))
    rows = values.rows(overrides, whose, base)
    settings = values.merged(rows)
    if any(row.key == ONLY and parsed(row.value) is True for row in rows):
        line = _evaluation(name, base["data.corpus"], settings)
        rule = "ssp migrate writes configs for training, and this script only evaluates"
        raise InputError(rule, f"{ONLY}=true", f"type `{line}`")
    below, notes = environment(env, settings)

    say(f"over --config {name}")
    if whose == "verl" and all(is_verls(override.key) for override in overrides):
        say(VERLS)
    for row in rows:
        why = row.note if row.known else f"UNKNOWN: {row.note}"
        say(f"  {row.key}={row.value}  ->  {', '.join(_typed(row.settings)) or why}")
    for note in notes:
        say(f"  {note}")
    made = sum(bool(row.settings) for row in rows)
    unknown = sum(not row.known for row in rows)
    untold = sum(row.known and not row.told for row in rows)
    reasons = len(rows) - made - unknown - untold
    counts = f"{made} set here, {reasons} with a reason why not"
    say(f"{len(rows)} keys: {counts}, {untold} without a value in the script, {unknown} unknown")

    if args.out is not None:
        _write(args.out, name, [*below, *_typed(settings)])
        say(f"{args.out}: ssp train --config {args.out} --dry-run shows it")
    mine = [row.key for row in rows if row.person]
    listed = f": {', '.join(map(printable, mine))}" if mine else ""
    say(f"{len(mine)} {'key needs' if len(mine) == 1 else 'keys need'} you{listed}")
    return 0


def _arguments(argv: Sequence[str]) -> tuple[Any, list[str]]:
    """Our own options, and all other words, which are theirs."""
    about = "Show what each key of a launch script is here, and write a config with it."
    parser = Parser("migrate", about)
    parser.epilog = ABOUT
    parser.usage = "ssp migrate SCRIPT|OVERRIDES... [--config NAME|FILE] [--out FILE]"
    below = "what lies below (default: its system's recipe)"
    parser.add_argument("--config", metavar="NAME|FILE", help=below)
    written = "config to write; one that exists is not replaced"
    parser.add_argument("--out", type=Path, metavar="FILE", help=written)
    args, theirs = parser.parse_known_args(argv)
    hold(theirs, "ssp migrate needs a script or overrides", "neither", "see ssp migrate --help")
    if args.out is not None and (args.out.exists() or args.out.suffix not in (".yaml", ".yml")):
        rule = "--out is a new file that ends in .yaml; one that exists is not replaced"
        raise InputError(rule, args.out, "name another one")
    return args, theirs


def _read(theirs: Sequence[str]) -> tuple[list[script.Override], Mapping[str, str]]:
    """Overrides in a script, or typed; and the variables that the script sets. What is typed behind
    a script replaces the script's own value of the same key."""
    if "=" in theirs[0] or theirs[0].startswith("-"):
        return script.typed(theirs), {}
    path = Path(theirs[0])
    rule = "a launch script is a file, an override key=value"
    hold(path.is_file(), rule, theirs[0], "check the path")
    with path.open("rb") as stream:
        text = stream.read(script.MOST + 1).decode("utf-8", "replace")
    options = [key.name for key in sections()["research"].keys if key.name.startswith("--")]
    overrides, variables = script.read(text, options)
    behind = script.typed(theirs[1:])
    typed = {override.key for override in behind}
    kept = [override for override in overrides if override.key not in typed]
    return [*kept, *behind], variables


def _evaluation(name: str, corpus: str, settings: Mapping[str, Any]) -> str:
    """The `ssp eval` that does what such a script does, as far as the script says; a word in
    capitals is to be filled in."""
    words = ["ssp", "eval", "--config", name]
    if not any(key.endswith(".model") for key in settings):
        words += ["--policy", "RUN"]
    sets = settings.get("data.eval", [{"file": "FILE", "corpus": corpus}])
    if sets[0]["corpus"] != corpus:
        words += ["--corpus", sets[0]["corpus"]]
    if settings.get("eval.temperature"):
        words += ["--temperature", str(settings["eval.temperature"])]
    words += ["--data", *(one["file"] for one in sets)]
    words += _typed({key: value for key, value in settings.items() if EVALUATED.match(key)})
    return " ".join(shlex.quote(printable(word)) for word in words)


def _typed(settings: Mapping[str, Any]) -> list[str]:
    """Settings as they are typed, `key=value`."""
    words = []
    for key, value in settings.items():
        text = yaml.safe_dump(value, default_flow_style=True, width=10_000)
        text = text.removesuffix("\n...\n").strip()
        words.append(f"{key}={printable(text)}")
    return words


def _write(out: Path, name: str, settings: Sequence[str]) -> None:
    """Write the recipe with the settings over it. InputError where they do not go together; nothing
    is written then."""
    load(name, settings)
    text = yaml.safe_dump(layered(name, settings), sort_keys=False, allow_unicode=True)
    with writable("the config can be written", out), whole(out) as aside:
        told = f"# Written by ssp migrate over --config {name}.\n"
        aside.write_text(told + text, encoding="utf-8")
        load(str(aside.absolute()), trusted=True)
