"""The referee: one verdict for each proposed question, by rules, one verifier pass over the
survivors, then its evidence. A check that cannot run never passes (law 6); a fault gives a void
verdict (law 2); what the verifier reads depends on the seeds, the episode's documents and the pool
only (law 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ssp.base.episode import Document, Episode, Outcome, Verdict
from ssp.base.errors import Fault, InvariantError
from ssp.base.seeds import derive, generator
from ssp.config.schema import RefereeConfig
from ssp.engines import Engine, Sampling
from ssp.engines.base import once
from ssp.game import protocols
from ssp.game.judge import AnswerJudge, Item
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee.evidence import EVIDENCE, facts
from ssp.game.referee.guide import VERIFIER as BY_VERIFIER
from ssp.game.referee.guide import Guide
from ssp.game.referee.rules import broken_rule

if TYPE_CHECKING:
    from ssp.game.judge.endpoint import Endpoint

VERIFIER, QUOTING = VERIFIERS = ("verifier", "quoting")
"""Roles of a verifier."""

Prompt = tuple[str, list[int]]
"""Its text and ids."""


class Verifier:
    """Answers prompts that it wrote itself. `form`: the protocol that its outputs follow, in the
    role `role`."""

    def __init__(self, form: protocols.Protocol, renderer: Renderer, cfg: RefereeConfig) -> None:
        self.form, self.role = form, _role(cfg)
        self._renderer, self._cfg = renderer, cfg
        self.likelihoods: Sequence[float] = ()  # of the newest answers, where they are known

    def write(self, documents: Sequence[Document], question: str) -> Prompt | None:
        """The prompt; None when it is longer than `referee.prompt_tokens`, as the solver's
        tokenizer counts."""
        text = self._text(asked(self.form, documents, question))
        (ids,) = self._renderer.encode([text])
        return (text, ids) if len(ids) <= self._cfg.prompt_tokens else None

    def answers(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[str | Fault]:
        """What the verifier wrote to each prompt, in order; `seeds`, one a prompt, are for
        engines."""
        raise NotImplementedError

    def _text(self, fields: dict[str, str]) -> str:
        return self._renderer.prompt(self.role, fields)


class EngineVerifier(Verifier):
    """A policy on an engine of ours, greedy, all prompts in one batch. It is spoken to in the
    policy's own protocol when that knows the role, else in natural language (`verifier.yaml`)."""

    def __init__(self, engine: Engine, renderer: Renderer, cfg: RefereeConfig) -> None:
        renderer = speaks(renderer, _role(cfg))
        super().__init__(renderer.protocol, renderer, cfg)
        self._engine, self._sampling = (
            engine,
            Sampling(0.0, cfg.answer_tokens, *renderer.stops(self.role)),
        )

    def answers(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[str | Fault]:
        """What the policy wrote to each prompt."""
        said = once(self._engine, seeds, [ids for _, ids in prompts], self._sampling)
        drawn = [() if isinstance(one, Fault) else one.logprobs for one in said]
        # geometric means
        self.likelihoods = [math.exp(sum(each) / len(each)) if each else 0.0 for each in drawn]
        return [one if isinstance(one, Fault) else self._renderer.decode(one.ids) for one in said]


class EndpointVerifier(Verifier):
    """A model of another origin behind an OpenAI-compatible endpoint. `renderer` counts the tokens
    of a prompt."""

    def __init__(self, endpoint: Endpoint, renderer: Renderer, cfg: RefereeConfig) -> None:
        super().__init__(natural(), renderer, cfg)
        self._endpoint = endpoint

    def answers(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[str | Fault]:
        """What the model replied to each prompt; an empty reply is a fault of the service."""
        texts = [text for text, _ in prompts]
        return self._endpoint.ask(texts, lambda reply: reply or None, self._cfg.answer_tokens)

    def _text(self, fields: dict[str, str]) -> str:
        return "\n\n".join(message["content"] for message in self.form.messages(self.role, fields))


def speaks(renderer: Renderer, role: str) -> Renderer:
    """What a policy is asked in as the verifier `role`: its protocol where that knows the role,
    else natural language."""
    known = role in renderer.protocol.roles
    return renderer if known else Renderer(natural(), renderer.tokenizer, renderer.template)


def asked(form: protocols.Protocol, documents: Sequence[Document], question: str) -> dict[str, str]:
    """The fields of a verifier's prompt."""
    return {"documents": form.bodies(documents), "question": question}


def natural() -> protocols.Protocol:
    """How a verifier is spoken to in natural language."""
    return protocols.get(str(Path(__file__).with_name("verifier.yaml")))


def _role(cfg: RefereeConfig) -> str:
    return QUOTING if cfg.evidence in ("quoted", "counted") else VERIFIER


T = TypeVar("T")
Blocks = list[list[Document]]


def pick_noise(episode: Episode, pool: Sequence[Document], k: int, seed: int) -> Blocks:
    """`k` documents of `pool` that the episode has not found (all of them when there are fewer), a
    block each."""
    return _draw(episode, [[document] for document in _others(episode, pool)], k, seed)


def pick_trajectories(episode: Episode, proposals: Sequence[Episode], k: int, seed: int) -> Blocks:
    """The whole material of `k` other proposals (SSP's noise), less what the episode has found; a
    block each. The draw does not depend on the order of `proposals`. Void ones are left out: what
    they found is a matter of luck."""
    others = [
        other for other in proposals if other is not episode and other.outcome is not Outcome.VOID
    ]
    others.sort(key=lambda other: (other.seed, other.id))
    blocks = [_others(episode, other.documents) for other in others]
    return _draw(episode, [block for block in blocks if block], k, seed)


def fit(
    episode: Episode,
    noise: Blocks,
    seed: int,
    together: bool,
    write: Callable[[list[Document]], T | None],
) -> T | None:
    """What `write` makes of the shuffled material; None when it takes not even one own document.
    `write` gives None for material that is too long: then noise goes first, a block at a time, and
    after it the oldest own documents. `together`: the own documents are one block too."""
    # What tools give under one id, as the windows of a document, are parts of it.
    parts: dict[tuple[str, str], Document] = {}
    # of a document that was shown cut and whole the whole one, in its first place
    for seen in episode.documents:
        key = (seen.id, seen.contents if episode.tools else "")
        parts[key] = max(parts.get(key, seen), seen, key=lambda shown: len(shown.contents))
    own, others = list(parts.values()), list(noise)
    while own:
        blocks = [own] if together else [[document] for document in own]
        blocks += others
        order = generator(seed, "referee", "order", episode.seed).permutation(len(blocks))
        written = write([document for i in order for document in blocks[i]])
        if written is not None:
            return written
        if others:
            others.pop()
        else:
            own.pop(0)
    return None


def _others(episode: Episode, pool: Sequence[Document]) -> list[Document]:
    own = {document.id for document in episode.documents}
    return list({document.id: document for document in pool if document.id not in own}.values())


def _draw(episode: Episode, blocks: Blocks, k: int, seed: int) -> Blocks:
    chosen = generator(seed, "referee", "noise", episode.seed).permutation(len(blocks))[:k]
    return [blocks[i] for i in chosen]


Noise = Callable[[Episode], list[Document]]
Asked = Sequence[tuple[str, int]]
"""Of each episode the target, and the searches that its row asks for (0: it does not say)."""

CHECKS = ("not_answerable", "unquoted_evidence", "unlinked_evidence", "too_few_facts")
"""What the verifier's output can fail, in order: it is not the target; no own document says so; not
of this question; it rests on fewer facts than the row asks for searches."""


class Referee:
    """Checks proposals in batches. `verifier` is there exactly when `cfg.verifier` names one;
    `judge` decides whether its answer is the target; `guide` scores what is valid; where it is
    `verifier`, the answer's likelihood does."""

    def __init__(
        self,
        cfg: RefereeConfig,
        protocol: protocols.Protocol,
        verifier: Verifier | None,
        judge: AnswerJudge,
        seed: int = 0,
        guide: Guide | str = "",
    ) -> None:
        if (cfg.verifier == "none") != (verifier is None) or (
            verifier is None and cfg.evidence != "none"
        ):
            raise InvariantError(
                f"verifier {verifier} for referee.verifier={cfg.verifier}, evidence={cfg.evidence}"
            )
        self._cfg, self._protocol, self._verifier, self._judge = cfg, protocol, verifier, judge
        self._seed, self._guide = seed, guide

    def check(self, episodes: Sequence[Episode], asked: Asked, noise: Noise) -> list[Verdict]:
        """One verdict an episode, in order. `noise` gives the documents from which an episode's
        noise is drawn."""
        verdicts = []
        for episode, (target, _) in zip(episodes, asked, strict=True):
            if episode.outcome is Outcome.VOID:
                verdicts.append(Verdict(valid=False, void_cause=episode.cause))
            else:
                verdicts.append(_ruled(broken_rule(episode, target, self._cfg, self._protocol)))
        left = [i for i, verdict in enumerate(verdicts) if verdict.valid]
        if self._verifier is not None and left:
            for i, verdict in self._by_verifier(self._verifier, episodes, left, asked, noise):
                verdicts[i] = verdict
        left = [i for i, verdict in enumerate(verdicts) if verdict.valid]
        if callable(self._guide) and left:
            rated = self._guide([episodes[i] for i in left], [asked[i][0] for i in left])
            for i, score in zip(left, rated, strict=True):
                if isinstance(score, Fault):
                    verdicts[i] = Verdict(valid=False, void_cause=score.cause)
                else:
                    verdicts[i] = Verdict(valid=True, guide=score)
        return verdicts

    def _by_verifier(
        self,
        verifier: Verifier,
        block: Sequence[Episode],
        rows: Sequence[int],
        asked: Asked,
        noise: Noise,
    ) -> Iterator[tuple[int, Verdict]]:
        """A verdict for each of `rows`; one whose evidence does not fit into a prompt gets no
        output, and fails."""
        written = ((i, self._prompt(verifier, block[i], block, noise)) for i in rows)
        prompts = {i: prompt for i, prompt in written if prompt is not None}
        seeds = [derive(self._seed, "referee", block[i].seed) for i in prompts]
        outputs: dict[int, str | Fault] = dict.fromkeys(rows, "")
        outputs.update(zip(prompts, verifier.answers(list(prompts.values()), seeds), strict=True))
        likely = (
            dict(zip(prompts, verifier.likelihoods, strict=True))
            if self._guide == BY_VERIFIER
            else {}
        )
        form, texts = (
            verifier.form,
            {i: output for i, output in outputs.items() if isinstance(output, str)},
        )
        items = [
            Item(block[i].final or "", [asked[i][0]], form.final(verifier.role, texts[i]))
            for i in texts
        ]
        decisions = dict(zip(texts, self._judge.decide(items), strict=True))
        evidence = EVIDENCE[self._cfg.evidence]
        for i, output in outputs.items():
            target, searches = asked[i]
            if isinstance(output, Fault):
                yield i, Verdict(valid=False, void_cause=output.cause)
            elif decisions[i].right is None:
                yield i, Verdict(valid=False, void_cause=decisions[i].void_cause)
            elif not decisions[i].right:
                yield i, _ruled(CHECKS[0])
            elif not evidence.stands(block[i], target, form, output):
                yield i, _ruled(CHECKS[1])
            else:
                leads = evidence.leads(block[i], target, form, output)
                few = evidence.counts and facts(output) < searches
                rule = CHECKS[2] if not leads else CHECKS[3] if few else ""
                yield i, replace(_ruled(rule), guide=likely.get(i, 1.0))

    def _prompt(
        self, verifier: Verifier, episode: Episode, block: Sequence[Episode], noise: Noise
    ) -> Prompt | None:
        """The verifier's prompt about `episode`; None when not one of its own documents fits."""
        k, whole = self._cfg.noise, self._cfg.evidence == "none"
        if whole:
            blocks = pick_trajectories(episode, block, k, self._seed)
        else:
            blocks = pick_noise(episode, noise(episode), k, self._seed)
        question = episode.final or ""
        return fit(
            episode,
            blocks,
            self._seed,
            whole,
            lambda documents: verifier.write(documents, question),
        )


def _ruled(rule: str) -> Verdict:
    return Verdict(valid=not rule, rule=rule)
