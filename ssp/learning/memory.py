"""How many tokens a micro-batch may have, and what happens when memory does not suffice after all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import torch

from ssp.base.errors import OutOfMemory
from ssp.base.printable import say

T = TypeVar("T")

SAYS = ("not enough memory", "can't allocate memory")
"""What torch says where the host's memory is short, as a plain RuntimeError."""


class Memory:
    """`tokens` in one micro-batch of a rank, padding included; with `packing` there is none. `name`: the key of the
    number that a user would lower."""

    def __init__(self, tokens: int, name: str = "learner.token_budget", packing: bool = False) -> None:
        self.tokens, self.halved, self.packing, self._name = tokens, False, packing, name

    def within(self, attempt: Callable[[], T], clear: Callable[[], None], local: bool = True) -> T:
        """What `attempt` gives; once again after `clear`, with half the tokens, where memory is short.

        `local`: the attempt needs no other rank; else they wait inside of it, and nothing can begin again. OutOfMemory.
        """
        while True:
            try:
                return attempt()
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not is_shortage(error):
                    raise
                short = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if self.halved or not local:
                raise self._refusal(short)
            self.tokens, self.halved = max(1, self.tokens // 2), True
            clear()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            say(f"out of memory ({short}): {self._name} is {self.tokens} from now on", file=sys.stderr)

    def _refusal(self, found: str) -> OutOfMemory:
        return OutOfMemory(
            f"an update does not fit into memory with {self.tokens} tokens a micro-batch: {found}. Next: set "
            f"{self._name}={max(1, self.tokens // 2)}, or learner.checkpointing=true"
        )


def is_shortage(error: BaseException) -> bool:
    """Whether this exception says that memory, of the host or of a GPU, was not enough."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAYS)
