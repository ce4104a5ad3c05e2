"""Generated worlds: `World(seed)`, its files (`ssp.world.files`) and its tokenizer (`ssp.world.tokenizer`)."""

from __future__ import annotations

from ssp.world.generator import Fact, Question, World

__all__ = ["Fact", "Question", "World"]
