"""What this node would run: a print of its code, versions and settings, and what differs from
another node's.

Owns the list of what must be equal. Promises that a difference is named. Refuses to know how prints
travel."""

import hashlib
import platform
from importlib import metadata
from pathlib import Path

import actors
import launch
import ssp
from ssp.base import files
from ssp.base.errors import hold
from ssp.config import own
from ssp.config.load import dotted
from ssp.config.schema import Config

SHOWN = 4
"""Differences that a message names; the rest is a number."""

Print = dict[str, str]
"""Name (a source file, python, ray, a setting) → a short hash, a version, a value."""


def printed(cfg: Config) -> Print:
    """This node's print. Settings below `ray.` are each node's own."""
    found = {"python": platform.python_version(), "ray": metadata.version("ray")}
    for package in (ssp, actors, launch):
        folder = Path(str(package.__file__)).parent
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.yaml")]):
            found[f"{folder.name}/{path.relative_to(folder).as_posix()}"] = files.digest(path)[:16]
    found |= {f"code of {key}": code for key, code in own.prints(cfg).items()}
    return found | {
        key: str(value) for key, value in dotted(cfg).items() if not key.startswith("ray.")
    }


def digest(print_: Print) -> str:
    """One short word for a print."""
    return hashlib.sha256(repr(sorted(print_.items())).encode()).hexdigest()[:12]


def check_same(here: Print, head: Print, host: str) -> None:
    """InputError naming what differs between a node, `host`, and the head."""
    names = [name for name in sorted(here.keys() | head.keys()) if here.get(name) != head.get(name)]
    shown = "; ".join(_said(name, here.get(name), head.get(name)) for name in names[:SHOWN])
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    rule = "every node runs the head's code, versions and settings"
    next_step = (
        "bring the same checkout, the same environment and the same command line to every node"
    )
    hold(not names, rule, f"on {host}: {shown}{more}", next_step)


def _said(name: str, here: str | None, head: str | None) -> str:
    if "/" not in name:
        return f"{name} is {here} here and {head} on the head"
    return f"{name} " + (
        "is missing here" if here is None else "is not on the head" if head is None else "differs"
    )
