"""Tag protocols by id: `get("mini")`, or by file: `get("my/protocol.yaml")`."""

from __future__ import annotations

import functools
from pathlib import Path

from ssp.base.episode import SOLVER
from ssp.base.errors import InputError
from ssp.game.protocols.base import Action, Protocol, Segment
from ssp.game.protocols.load import read

_LIBRARY = Path(__file__).parent / "library"


def names() -> list[str]:
    """The shipped protocol ids, sorted."""
    return sorted(path.stem for path in _LIBRARY.glob("*.yaml"))


def get(id: str) -> Protocol:
    """The protocol with this id, or the one in this file (ends in .yaml). InputError when there is none."""
    return _read(_find(id))


def _find(id: str) -> Path:
    if id.endswith((".yaml", ".yml")):
        path = Path(id).expanduser().absolute()
        if path.is_file():
            return path
        raise InputError("a protocol file exists", path, "check the path")
    if id not in names():
        rule = f"protocol must be one of {', '.join(names())}, or a .yaml file"
        raise InputError(rule, id, "set protocol to one of these, or a file's path")
    return _LIBRARY / f"{id}.yaml"


def training_prompt() -> str:
    """The prompt of Search-R1's training rows, with the hole {question}."""
    return get("search-r1").role(SOLVER).user


@functools.cache
def _read(path: Path) -> Protocol:
    protocol = read(path, _find)
    if path.parent != _LIBRARY and protocol.id in names():
        rule = "a protocol of your own has an id that no shipped one has: checkpoints are told apart by it"
        raise InputError(rule, f"{path}: id: {protocol.id}", f"write for example `id: my-{protocol.id}`")
    return protocol


__all__ = ["Action", "Protocol", "Segment", "get", "names", "training_prompt"]
