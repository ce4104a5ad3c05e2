"""A policy without a model: it searches and hands in what the protocol asks for, in as many tokens
as it is told.

Its turns are valid in any protocol and drawn from the episode's seed. Its answers are words at
random, so a run pays it by `ssp.learning.tiny.reward:letters`."""

import math

from ssp.base.episode import PROPOSER
from ssp.base.seeds import generator
from ssp.config.schema import Config
from ssp.game.protocols.calls import written
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee import rules
from ssp.game.settings import natural
from ssp.game.world.vocabulary import RELATIONS, SCHEMA

WORDS = (*SCHEMA, *RELATIONS)
"""Words of which each finds something in any generated world."""


def least_searches(cfg: Config, role: str) -> int:
    """Fewest searches of an episode: what the referee asks for, else one where there may be one."""
    least = min(1, cfg.block(role).limits.searches)
    if role == cfg.spec.asker:
        least = max(least, rules.least_searches(cfg.referee))
    return least


def turns(tokens: float, sigma: float, seed: int, searches: tuple[int, int], cap: int) -> list[int]:
    """Tokens of each turn of the episode of that seed. The last turn hands in, the others search,
    as often as the range `searches` says. Tokens are lognormal with the mean `tokens`, at most
    `cap`; 0 where there is no mean: a turn is as short as it can be then.

    >>> turns(100, 0.0, 7, (2, 2), 80)
    [80, 80, 80]"""
    draws = generator(seed, "actor")
    count = 1 + int(draws.integers(searches[0], searches[1] + 1))
    if not tokens:
        return [0] * count
    drawn = draws.lognormal(math.log(tokens) - sigma**2 / 2, sigma, count)
    return [min(cap, max(1, round(length))) for length in drawn]


class Actor:
    """The script (`ssp.engines.Script`) of one role, in the words of its first prompt."""

    def __init__(self, cfg: Config, role: str, renderer: Renderer) -> None:
        self._renderer = renderer
        self._role = cfg.spec.prompts_of(role)[0]  # which decides what is handed in, and how
        block = cfg.block(role)
        self._lengths = block.engine.simulated
        self._cap = block.limits.turn_tokens
        self._searches = (least_searches(cfg, role), block.limits.searches)
        self._world = not natural(cfg.protocol)
        (self._filler,) = renderer.encode([f"{WORDS[0]} "])

    def __call__(self, ids: list[int], seed: int, turn: int) -> list[int]:
        """Ids of a turn: thinking aloud without tags, then a search, or at last the result."""
        lengths = turns(self._lengths.tokens, self._lengths.sigma, seed, self._searches, self._cap)
        words = [WORDS[i] for i in generator(seed, "words").permutation(len(WORDS))]
        renderer = self._renderer
        role = self._role
        last = len(lengths) - 1
        if turn < last:
            said = searching(renderer, role, words[turn % len(words)])
        elif self._world and role == PROPOSER:
            said = handing_in(renderer, role, f"{words[-1]} {words[-2]} ?")
        else:
            said = handing_in(renderer, role, result(renderer, role, words[-2:]))
        (core,) = renderer.encode([said])
        padding = max(0, lengths[min(turn, last)] - len(core))
        return (self._filler * padding)[:padding] + core


def searching(renderer: Renderer, role: str, query: str, ended: bool = True) -> str:
    """A turn that searches for `query`, to its end unless it goes on."""
    form = renderer.protocol.search
    turn = f"<{form.tag}> {written(query, form.form)} </{form.tag}>"
    return turn + ending(renderer, role, form.tag) if ended else turn


def handing_in(renderer: Renderer, role: str, text: str) -> str:
    """A turn that hands in `text`."""
    final = renderer.protocol.role(role).final
    return f"<{final}> {text} </{final}>{ending(renderer, role, final)}"


def result(renderer: Renderer, role: str, words: list[str]) -> str:
    """A question long enough for SSP's rules, or an answer of these words."""
    if role == PROPOSER:
        return question(words)
    return boxed(renderer, role, " ".join(words))


def question(words: list[str]) -> str:
    """A question long enough for SSP's rules."""
    return f"Which of the things that I found has the {words[0]} of the {words[-1]}?"


def boxed(renderer: Renderer, role: str, text: str) -> str:
    """`text` as the role hands it in."""
    return f"\\boxed{{{text}}}" if renderer.protocol.role(role).boxed else text


def ending(renderer: Renderer, role: str, tag: str) -> str:
    """What ends a turn behind the closing tag: nothing where the tag itself stops the policy."""
    if f"</{tag}>" in renderer.protocol.stops(role):
        return ""
    return renderer.decode(renderer.ends[:1])
