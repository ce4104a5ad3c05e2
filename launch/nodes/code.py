"""What must be equal on all nodes: code, versions, settings. A difference is named."""

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


def printed(cfg: Config, nodes: int) -> Print:
    """What must be equal, on this node. Settings below `ray.` are each node's own."""
    print_ = {"NNODES": str(nodes)}
    print_["python"] = platform.python_version()
    print_["ray"] = metadata.version("ray")
    for package in (ssp, actors, launch):
        folder = Path(str(package.__file__)).parent
        for path in [*folder.rglob("*.py"), *folder.rglob("*.yaml")]:
            print_[f"{folder.name}/{path.relative_to(folder)}"] = files.digest(path)[:16]
    for key, code in own.prints(cfg).items():
        print_[f"code of {key}"] = code
    for key, value in dotted(cfg).items():
        if not key.startswith("ray."):
            print_[key] = str(value)
    return print_


def check_same(here: Print, head: Print) -> None:
    """InputError naming what differs between this node and the head."""
    differences = []
    for name in sorted(here.keys() | head.keys()):
        mine = here.get(name, "missing")
        its = head.get(name, "missing")
        if mine != its:
            differences.append(f"{name} is {mine} here and {its} on the head")
    hold(
        not differences,
        "every node runs the head's code, versions and settings",
        f"{'; '.join(differences[:SHOWN])} ({len(differences)} in all)",
        "bring the same checkout, the same environment and the same command line to every node",
    )
