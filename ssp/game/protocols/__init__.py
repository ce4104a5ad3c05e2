"""Tag protocols, by id (`get("mini")`) or by file (`get("my/protocol.yaml")`)."""

import functools
from pathlib import Path

from ssp.base.episode import SOLVER
from ssp.base.errors import hold
from ssp.game.protocols.base import Action, Protocol, Segment
from ssp.game.protocols.load import read

_LIBRARY = Path(__file__).parent / "library"


def names() -> list[str]:
    """The shipped protocol ids, sorted."""
    return sorted(path.stem for path in _LIBRARY.glob("*.yaml"))


def get(id: str) -> Protocol:
    """The protocol with this id, or in this .yaml file. InputError when there is none."""
    return _read(_find(id))


def _find(id: str) -> Path:
    if id.endswith((".yaml", ".yml")):
        path = Path(id).expanduser().absolute()
        hold(path.is_file(), "a protocol file exists", path, "check the path")
        return path
    rule = f"protocol must be one of {', '.join(names())}, or a .yaml file"
    hold(id in names(), rule, id, "set protocol to one of these, or a file's path")
    return _LIBRARY / f"{id}.yaml"


def training_prompt() -> str:
    """The prompt of Search-R1's training rows, with the hole {question}."""
    return get("search-r1").role(SOLVER).user


@functools.cache
def _read(path: Path) -> Protocol:
    protocol = read(path, _find)
    shipped = path.parent == _LIBRARY
    rule = (
        "a protocol of your own has an id that no shipped one has: checkpoints are told apart by it"
    )
    step = f"write for example `id: my-{protocol.id}`"
    hold(shipped or protocol.id not in names(), rule, f"{path}: id: {protocol.id}", step)
    return protocol


__all__ = ["Action", "Protocol", "Segment", "get", "names", "training_prompt"]
