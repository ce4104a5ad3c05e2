"""The referee: one verdict for each proposed question. First the rules are asked, then the verifier
answers what is left, then its evidence is checked.

A check that cannot run never passes (law 6). A fault gives a void verdict (law 2). What the
verifier reads depends on the seeds, the episode's documents and the pool only (law 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ssp.base.episode import Document, Episode, Outcome, Verdict
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
        """What the verifier wrote to each prompt, in order; `seeds`, one a prompt, are of the
        draws."""
        raise NotImplementedError

    def _text(self, fields: dict[str, str]) -> str:
        return self._renderer.prompt(self.role, fields)


class EngineVerifier(Verifier):
    """A policy on an engine of ours, all prompts in one batch: greedy where it answers once. It is
    spoken to in the policy's own protocol when that knows the role, else in natural language
    (`verifier.yaml`)."""

    def __init__(self, engine: Engine, renderer: Renderer, cfg: RefereeConfig) -> None:
        renderer = speaks(renderer, _role(cfg))
        super().__init__(renderer.protocol, renderer, cfg)
        self._engine = engine
        stops = renderer.stops(self.role)
        self._sampling = Sampling(cfg.temperature, cfg.answer_tokens, *stops)

    def answers(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[str | Fault]:
        """What the policy wrote to each prompt."""
        turns = once(self._engine, seeds, [ids for _, ids in prompts], self._sampling)
        texts: list[str | Fault] = []
        likelihoods = []
        for turn in turns:
            mean = 0.0
            if isinstance(turn, Fault):
                texts.append(turn)
            else:
                texts.append(self._renderer.decode(turn.ids))
                if turn.logprobs:  # the geometric mean of its tokens' probabilities
                    mean = math.exp(sum(turn.logprobs) / len(turn.logprobs))
            likelihoods.append(mean)
        self.likelihoods = likelihoods
        return texts


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
        drawn = [seed % 2**31 for seed in seeds] if temperature else []
        return self._endpoint.ask(texts, lambda reply: reply or None, most, temperature, drawn)

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

DOUBTS = ("not_answerable", "unquoted_evidence", "unlinked_evidence")
"""What the verifier's output can fail where the target is doubted, in order: its answer is not the
target; no own document says what it quotes; the quotes do not lead to the target."""
CHECKS = (*DOUBTS, "too_few_facts")
"""All that it can fail; the last: its quotes are fewer facts than the row asks for searches."""


CLOSED_BOOK = "closed_book"
"""Rule of `referee.closed_book`: the verifier answers the question without a document."""


@dataclass
class Proof:
    """What the verifier wrote about the question of `row` (nothing, where it was not asked), how
    likely that was to it, and whether it is the target: `right` is None for a fault, of `cause`."""

    row: int
    output: str = ""
    likelihood: float = 1.0
    right: bool | None = None
    cause: str = ""


class Referee:
    """Checks proposals in batches. `verifier` is there exactly when `cfg.verifier` names one.
    `judge` decides whether its answer is the target. `guide` scores the valid questions; where it
    is "verifier", the likelihood of the verifier's answer is the score."""

    def __init__(
        self,
        cfg: RefereeConfig,
        protocol: protocols.Protocol,
        verifier: Verifier | None,
        judge: AnswerJudge,
        seed: int = 0,
        guide: Guide | str = "",
    ) -> None:
        named = cfg.verifier != "none"
        if named != (verifier is not None) or (cfg.evidence != "none" and not named):
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
                verdicts.append(_void(episode.cause))
            else:
                verdicts.append(_ruled(broken_rule(episode, target, self._cfg, self._protocol)))
        left = [i for i, verdict in enumerate(verdicts) if verdict.valid]
        if self._verifier is not None and left:
            agreed = self._by_verifier(self._verifier, episodes, left, asked, noise)
            for i, verdict in agreed.items():
                verdicts[i] = verdict
        left = [i for i, verdict in enumerate(verdicts) if verdict.valid]
        if callable(self._guide) and left:
            targets = [asked[i][0] for i in left]
            scores = self._guide([episodes[i] for i in left], targets)
            for i, score in zip(left, scores, strict=True):
                if isinstance(score, Fault):
                    verdicts[i] = _void(score.cause)
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
        """New verdicts on valid questions that the verifier answers without a document. One right
        answer of `samples` is enough."""
        valid = [i for i, verdict in verdicts.items() if verdict.valid]
        prompts = {i: verifier.write((), block[i].final or "") for i in valid}
        changed: dict[int, Verdict] = {}
        for proof in self._proofs(verifier, block, asked, prompts):
            if proof.right is None:
                changed.setdefault(proof.row, _void(proof.cause))
            elif proof.right:
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
        proofs = []
        waiting = []
        written, seeds = [], []
        for i, prompt in prompts.items():
            if prompt is None:
                proofs.append(Proof(i))
                continue
            for n in range(self._cfg.samples):
                again = [n] if n else []  # the first answer is drawn as where it is the only one
                seeds.append(derive(self._seed, "referee", block[i].seed, *again))
                written.append(prompt)
                waiting.append(Proof(i))
                proofs.append(waiting[-1])
        outputs = verifier.answers(written, seeds)
        likelihoods = verifier.likelihoods if self._guide == BY_VERIFIER else [1.0] * len(outputs)
        for proof, output, likelihood in zip(waiting, outputs, likelihoods, strict=True):
            proof.likelihood = likelihood
            if isinstance(output, Fault):
                proof.cause = output.cause
            else:
                proof.output = output
        told = [proof for proof in proofs if not proof.cause]
        items = []
        for proof in told:
            answer = verifier.form.final(verifier.role, proof.output)
            target, _ = asked[proof.row]
            items.append(Item(block[proof.row].final or "", [target], answer))
        for proof, decision in zip(told, self._judge.decide(items), strict=True):
            proof.right, proof.cause = decision.right, decision.void_cause
        return proofs

    def _proven(
        self, form: protocols.Protocol, episode: Episode, asked: tuple[str, int], proof: Proof
    ) -> Verdict:
        """The verdict of one answer."""
        target, searches = asked
        evidence, output = EVIDENCE[self._cfg.evidence], proof.output
        if proof.right is None:
            return _void(proof.cause)
        if not proof.right:
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

        def write(documents: Sequence[Document]) -> Prompt | None:
            return verifier.write(documents, episode.final or "")

        return fit(episode, blocks, self._seed, whole, write)


def _ruled(rule: str) -> Verdict:
    return Verdict(valid=not rule, rule=rule)


def _void(cause: str) -> Verdict:
    return Verdict(valid=False, void_cause=cause)


def _agreed(verdicts: Sequence[Verdict], needed: int) -> Verdict:
    """The verdict on a question: the first valid one where `needed` are valid. Else the first void
    one where the void ones could have made enough, and the first one by a rule where not."""
    valid = [verdict for verdict in verdicts if verdict.valid]
    void = [verdict for verdict in verdicts if verdict.void_cause]
    if len(valid) >= needed:
        return valid[0]
    if void and len(valid) + len(void) >= needed:
        return void[0]
    return next(verdict for verdict in verdicts if not (verdict.valid or verdict.void_cause))
