"""The referee: one verdict for each proposed question, by rules, one verifier pass over the
survivors, then its evidence. A check that cannot run never passes (law 6); a fault gives a void
verdict (law 2); what the verifier reads depends on the seeds, the episode's documents and the pool
only (law 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ssp.base.episode import Document, Episode, Grade, Outcome, Verdict
from ssp.base.errors import Fault, InvariantError
from ssp.base.seeds import derive
from ssp.config.schema import RefereeConfig
from ssp.engines import Engine, Sampling
from ssp.engines.base import once
from ssp.game import protocols
from ssp.game.judge import AnswerJudge, Item
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee.evidence import EVIDENCE, facts
from ssp.game.referee.guide import VERIFIER as BY_VERIFIER
from ssp.game.referee.guide import Guide
from ssp.game.referee.material import fit, pick_noise, pick_trajectories
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
    """A policy on an engine of ours, all prompts in one batch: greedy where it answers once. It is spoken to in the
    policy's own protocol when that knows the role, else in natural language (`verifier.yaml`)."""

    def __init__(self, engine: Engine, renderer: Renderer, cfg: RefereeConfig) -> None:
        renderer = speaks(renderer, _role(cfg))
        super().__init__(renderer.protocol, renderer, cfg)
        self._engine, self._sampling = (
            engine,
            Sampling(cfg.temperature, cfg.answer_tokens, *renderer.stops(self.role)),
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
        most, temperature = self._cfg.answer_tokens, self._cfg.temperature
        return self._endpoint.ask(texts, lambda reply: reply or None, most, temperature)

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


Noise = Callable[[Episode], list[Document]]
Asked = Sequence[tuple[str, int]]
"""Of each episode the target, and the searches that its row asks for (0: it does not say)."""

CHECKS = ("not_answerable", "unquoted_evidence", "unlinked_evidence", "too_few_facts")
"""What the verifier's output can fail, in order: it is not the target; no own document says so; not
of this question; it rests on fewer facts than the row asks for searches."""


CLOSED_BOOK = "closed_book"
"""Rule of `referee.closed_book`: the verifier answers the question without a document."""


@dataclass
class Proof:
    """What the verifier wrote about the question of `row`, how likely that was to it, and whether
    it is the target."""

    row: int
    output: str | Fault
    likelihood: float
    decision: Grade = Grade(None)


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
            read = self._by_verifier(self._verifier, episodes, left, asked, noise)
            for i, verdict in read.items():
                verdicts[i] = verdict
        left = [i for i, verdict in enumerate(verdicts) if verdict.valid]
        if callable(self._guide) and left:
            rated = self._guide([episodes[i] for i in left], [asked[i][0] for i in left])
            for i, score in zip(left, rated, strict=True):
                if isinstance(score, Fault):
                    verdicts[i] = Verdict(valid=False, void_cause=score.cause)
                else:
                    verdicts[i] = replace(verdicts[i], guide=score)
        return verdicts

    def _by_verifier(
        self,
        verifier: Verifier,
        block: Sequence[Episode],
        rows: Sequence[int],
        asked: Asked,
        noise: Noise,
    ) -> dict[int, Verdict]:
        """A verdict for each of `rows`, by `samples` answers of the verifier; one whose evidence
        does not fit into a prompt gets no answer, and fails."""
        prompts = {i: self._prompt(verifier, block[i], block, noise) for i in rows}
        proofs = self._proofs(verifier, block, asked, prompts)
        verdicts: dict[int, list[Verdict]] = {i: [] for i in rows}
        for proof in proofs:
            i = proof.row
            verdicts[i].append(self._proven(verifier.form, block[i], asked[i], proof))
        agreed = {i: _agreed(several, self._cfg.needed) for i, several in verdicts.items()}
        if self._cfg.closed_book:
            agreed |= self._by_memory(verifier, block, asked, agreed)
        return agreed

    def _by_memory(
        self,
        verifier: Verifier,
        block: Sequence[Episode],
        asked: Asked,
        verdicts: Mapping[int, Verdict],
    ) -> dict[int, Verdict]:
        """New verdicts on valid questions that the verifier answers without a document: in one of
        `samples` answers is enough."""
        valid = [i for i, verdict in verdicts.items() if verdict.valid]
        prompts = {i: verifier.write((), block[i].final or "") for i in valid}
        changed: dict[int, Verdict] = {}
        for proof in self._proofs(verifier, block, asked, prompts):
            if isinstance(proof.output, Fault):
                changed.setdefault(proof.row, Verdict(False, void_cause=proof.output.cause))
            elif proof.decision.right is None:
                cause = proof.decision.void_cause
                changed.setdefault(proof.row, Verdict(False, void_cause=cause))
            elif proof.decision.right:
                changed[proof.row] = _ruled(CLOSED_BOOK)
        return changed

    def _proofs(
        self,
        verifier: Verifier,
        block: Sequence[Episode],
        asked: Asked,
        prompts: Mapping[int, Prompt | None],
    ) -> list[Proof]:
        """What the verifier answers, `samples` times a prompt, and whether that is the target."""
        samples = self._cfg.samples
        drawn = [
            (i, n) for i, prompt in prompts.items() if prompt is not None for n in range(samples)
        ]
        seeds = [_seed(self._seed, block[i], n) for i, n in drawn]
        written = [prompt for i, _ in drawn if (prompt := prompts[i]) is not None]
        outputs: dict[int, list[str | Fault]] = {i: [] for i in prompts}
        likely: dict[int, list[float]] = {i: [] for i in prompts}
        said = verifier.answers(written, seeds)
        likelihoods = verifier.likelihoods if self._guide == BY_VERIFIER else [1.0] * len(said)
        for (i, _), output, likelihood in zip(drawn, said, likelihoods, strict=True):
            outputs[i].append(output)
            likely[i].append(likelihood)
        proofs = []
        for i, prompt in prompts.items():
            if prompt is None:
                outputs[i], likely[i] = [""], [1.0]
            proofs += [Proof(i, *one) for one in zip(outputs[i], likely[i], strict=True)]
        told = [proof for proof in proofs if isinstance(proof.output, str)]
        items = [
            Item(
                block[proof.row].final or "",
                [asked[proof.row][0]],
                verifier.form.final(verifier.role, str(proof.output)),
            )
            for proof in told
        ]
        for proof, decision in zip(told, self._judge.decide(items), strict=True):
            proof.decision = decision
        return proofs

    def _proven(
        self, form: protocols.Protocol, episode: Episode, asked: tuple[str, int], proof: Proof
    ) -> Verdict:
        """The verdict of one answer."""
        target, searches = asked
        evidence, output, decision = EVIDENCE[self._cfg.evidence], proof.output, proof.decision
        if isinstance(output, Fault):
            return Verdict(valid=False, void_cause=output.cause)
        if decision.right is None:
            return Verdict(valid=False, void_cause=decision.void_cause)
        if not decision.right:
            return _ruled(CHECKS[0])
        if not evidence.stands(episode, target, form, output):
            return _ruled(CHECKS[1])
        if not evidence.leads(episode, target, form, output):
            return _ruled(CHECKS[2])
        if evidence.counts and facts(output) < searches:
            return _ruled(CHECKS[3])
        source = evidence.source(episode, form, output)
        return Verdict(valid=True, guide=proof.likelihood, source=source)

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


def _seed(seed: int, episode: Episode, n: int) -> int:
    """Of the n-th answer to a question; of the first one as where there is no other."""
    again = [n] if n else []
    return derive(seed, "referee", episode.seed, *again)


def _agreed(verdicts: Sequence[Verdict], needed: int) -> Verdict:
    """The first valid one where `needed` are valid, else the first other one; a void where those
    that are void could have made enough."""
    valid = [verdict for verdict in verdicts if verdict.valid]
    void = [verdict for verdict in verdicts if verdict.void_cause]
    if len(valid) >= needed:
        return valid[0]
    if void and len(valid) + len(void) >= needed:
        return void[0]
    return next(verdict for verdict in verdicts if not (verdict.valid or verdict.void_cause))
