"""Generated worlds: `World(seed)`, its files (`ssp.game.world.files`) and its tokenizer
(`ssp.game.world.tokenizer`)."""

from ssp.game.world.generator import Fact, Question, World

__all__ = ["Fact", "Question", "World"]
