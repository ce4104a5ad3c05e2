"""Who is asked about an answer that matches no gold answer exactly: a chat endpoint, or an engine of our own.

Owns both. Promises that what is no verdict is undecided with its cause, never wrong (law 2), and that both get the same
prompt and read replies by the same parser. Refuses to know requests (`ssp.game.judge.endpoint`) and weights (engines).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ssp.base.episode import Grade
from ssp.base.errors import Fault, InputError
from ssp.config.schema import JudgeConfig
from ssp.engines import Engine, Sampling
from ssp.engines.base import once
from ssp.game.judge.answers import Item
from ssp.game.judge.endpoint import FORMAT, THINKS, Endpoint
from ssp.game.judge.verdict import prompt, verdict
from ssp.game.protocols.renderer import ask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LLM, ENGINE = "llm", "engine"

PROBE = Item("Which planet do people live on?", ("Earth",), "on planet earth")
"""What a judge is asked before it is relied on; any verdict will do."""


class LlmJudge:
    """An OpenAI-compatible endpoint as the judge (`judge.kind=llm`)."""

    def __init__(self, cfg: JudgeConfig, endpoint: Endpoint) -> None:
        self._cfg, self._endpoint = cfg, endpoint

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision an item, in order; causes are `ssp.game.judge.endpoint`'s."""
        form = self._cfg.format
        replies = self._endpoint.ask([prompt(item, form) for item in items], lambda reply: verdict(reply, form))
        return [
            Grade(None, void_cause=found.cause, by=LLM) if isinstance(found, Fault) else Grade(found, by=LLM)
            for found in replies
        ]

    def check(self) -> None:
        """Ask for one verdict. InputError when none comes."""
        self._endpoint.check(prompt(PROBE, self._cfg.format), lambda reply: verdict(reply, self._cfg.format))


class EngineJudge:
    """One of our engines as the judge (`judge.kind=engine`): greedy, in batches of `judge.concurrency`."""

    def __init__(self, cfg: JudgeConfig, engine: Engine, tokenizer: PreTrainedTokenizerBase) -> None:
        self._cfg, self._engine, self._tokenizer = cfg, engine, tokenizer

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision an item, in order; undecided by the engine's Fault, or `judge_format`."""
        decisions: list[Grade] = []
        for start in range(0, len(items), self._cfg.concurrency):
            batch = items[start : start + self._cfg.concurrency]
            try:
                replies = self._replies(batch)
            except Fault as fault:
                decisions += [Grade(None, void_cause=fault.cause, by=ENGINE)] * len(batch)
                continue
            rights = [verdict(reply, self._cfg.format) for reply in replies]
            decisions += [Grade(right, void_cause=FORMAT if right is None else "", by=ENGINE) for right in rights]
        return decisions

    def check(self) -> None:
        """InputError when the model gives no verdict on a plain question."""
        (found,) = self.decide([PROBE])
        if found.right is None:
            raise InputError(
                f"the judge {self._cfg.model} gives a verdict before it is relied on",
                found.void_cause,
                THINKS,
            )

    def _replies(self, items: Sequence[Item]) -> list[str]:
        end = self._tokenizer.eos_token_id
        sampling = Sampling(0.0, self._cfg.max_tokens, () if end is None else (int(end),))
        prompts = [ask(self._tokenizer, prompt(item, self._cfg.format), "\n\n") for item in items]
        said = once(self._engine, [0] * len(items), prompts, sampling)
        return [str(self._tokenizer.decode(generation.ids, skip_special_tokens=True)) for generation in said]
