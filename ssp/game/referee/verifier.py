"""Who answers the question from the material: a policy on one of our engines, or a model behind an endpoint.

Owns the verifier's prompt, its length limit and the greedy pass. Promises that a fault of the service comes back as a
`Fault` in the place of each answer that it cost, and that any other exception goes up. Refuses to judge what was answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ssp.base.episode import Document
from ssp.base.errors import Fault
from ssp.config.schema import RefereeConfig
from ssp.engines import Engine, Sampling
from ssp.engines.base import once
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer

if TYPE_CHECKING:
    from ssp.game.judge.endpoint import Endpoint

VERIFIER, QUOTING = "verifier", "quoting"


class Verifier(Protocol):
    """Answers prompts that it wrote itself. `form`: the protocol that its outputs follow, in the role `role`."""

    form: protocols.Protocol
    role: str

    def write(self, documents: Sequence[Document], question: str) -> Any | None:
        """The prompt; None when it is longer than `referee.prompt_tokens`."""

    def answers(self, prompts: Sequence[Any], seeds: Sequence[int]) -> list[str | Fault]:
        """What the verifier wrote to each prompt, in order; `seeds`, one a prompt, are for engines."""


class EngineVerifier:
    """A policy on an engine of ours, greedy, all prompts in one batch.

    It is spoken to in the policy's own protocol when that knows the role, else in natural language (`verifier.yaml`).
    """

    def __init__(self, engine: Engine, renderer: Renderer, cfg: RefereeConfig) -> None:
        self.role, self.form = _role(cfg), renderer.protocol
        if self.role not in self.form.roles:
            self.form = natural()
            renderer = Renderer(self.form, renderer.tokenizer, renderer.template)
        self._engine, self._renderer, self._most = engine, renderer, cfg.prompt_tokens
        stop_ids, stop_words = renderer.stops(self.role)
        self._sampling = Sampling(0.0, cfg.answer_tokens, stop_ids, stop_words)

    def write(self, documents: Sequence[Document], question: str) -> list[int] | None:
        """The prompt's ids; None when there are more than `referee.prompt_tokens`."""
        fields = {"documents": self.form.bodies(documents), "question": question}
        (ids,) = self._renderer.encode([self._renderer.prompt(self.role, fields)])
        return ids if len(ids) <= self._most else None

    def answers(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> list[str | Fault]:
        """What the policy wrote to each prompt; the engine's fault costs all of them."""
        if not prompts:
            return []
        try:
            generations = once(self._engine, seeds, prompts, self._sampling)
        except Fault as fault:
            return [fault] * len(prompts)
        return [self._renderer.decode(generation.ids) for generation in generations]


class EndpointVerifier:
    """A model of another origin behind an OpenAI-compatible endpoint. `renderer` counts the tokens of a prompt."""

    def __init__(self, endpoint: Endpoint, renderer: Renderer, cfg: RefereeConfig) -> None:
        self.role, self.form = _role(cfg), natural()
        self._endpoint, self._renderer = endpoint, renderer
        self._most, self._answer_tokens = cfg.prompt_tokens, cfg.answer_tokens

    def write(self, documents: Sequence[Document], question: str) -> str | None:
        """The prompt's text; None when it has more than `referee.prompt_tokens`, as the solver's tokenizer counts."""
        fields = {"documents": self.form.bodies(documents), "question": question}
        text = "\n\n".join(message["content"] for message in self.form.messages(self.role, fields))
        (ids,) = self._renderer.encode([text])
        return text if len(ids) <= self._most else None

    def answers(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[str | Fault]:
        """What the model replied to each prompt; an empty reply is a fault of the service."""
        return self._endpoint.ask(prompts, lambda reply: reply or None, self._answer_tokens)


def natural() -> protocols.Protocol:
    """How a verifier is spoken to in natural language."""
    return protocols.get(str(Path(__file__).with_name("verifier.yaml")))


def _role(cfg: RefereeConfig) -> str:
    return QUOTING if cfg.evidence == "quoted" else VERIFIER
