"""Generated worlds: `World(seed)`, its files (`ssp.game.world.files`) and its tokenizer
(`ssp.game.world.tokenizer`)."""

from ssp.game.world.generator import Fact, World, WorldQuestion

__all__ = ["Fact", "WorldQuestion", "World"]
