"""Small proposals, documents and verifiers for the referee's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ssp.base.episode import Document, Episode
from ssp.base.errors import Fault
from ssp.config.schema import RefereeConfig
from ssp.engines import Generation, Sampling, ScriptedEngine
from ssp.game import protocols
from ssp.game.judge import AnswerJudge
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee import EndpointVerifier, EngineVerifier, Referee
from tests.blocks import made

MINI = protocols.get("mini")
POTA = Document("d1", '"Pota"\npota a company . pota seat vure .')
VURE = Document("d2", '"Vure"\nvure a city . vure nation lemo .')
NOISE = [Document(f"n{i}", f'"N{i}"\nnoise{i} a person .') for i in range(5)]
GOOD = "<think> pota seat vure </think> <answer> vure </answer>"


class Words:
    """A tokenizer that learns one id a word, in the order seen."""

    all_special_ids: tuple[int, ...] = ()
    eos_token_id = None
    name_or_path = "words"

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}

    def __call__(self, texts: list[str], add_special_tokens: bool = True) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [self.encode(text) for text in texts]}

    def encode(self, text: str) -> list[int]:
        return [self.vocabulary.setdefault(word, len(self.vocabulary)) for word in text.split()]

    @property
    def backend_tokenizer(self) -> Words:
        return self

    def decode(self, ids: Sequence[int], **options: bool) -> str:
        assert not any(options.values())
        words = {id: word for word, id in self.vocabulary.items()}
        return " ".join(words[id] for id in ids)


class Broken(ScriptedEngine):
    """Raises on every step."""

    def __init__(self, error: Exception) -> None:
        super().__init__(lambda ids, seed, turn: [])
        self._error = error

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        raise self._error


class Line:
    """An endpoint: replies `reply(prompt)`, which may be a fault; keeps the prompts."""

    def __init__(self, reply: Callable[[str], str | Fault]) -> None:
        self._reply, self.prompts, self.most = reply, [], 0  # type: ignore[var-annotated]

    def ask(
        self,
        prompts: Sequence[str],
        read: Callable[[str], str | None],
        max_tokens: int,
        temperature: float = 0,
        seeds: Sequence[int] = (),
    ) -> list[Any]:
        self.prompts += prompts
        self.most = max_tokens
        replies = [self._reply(prompt) for prompt in prompts]
        return [r if isinstance(r, Fault) else read(r) or Fault("judge_format") for r in replies]


def proposal(
    name: str = "a",
    final: str | None = "pota seat ?",
    documents: Sequence[Document] = (POTA, VURE),
    queries: Sequence[str] = ("pota",),
    hits: Sequence[int] | None = None,
) -> Episode:
    """A proposer's episode; its last search showed all the documents unless `hits` says otherwise."""
    shown = [0] * max(len(queries) - 1, 0) + [len(documents)][: len(queries)] if hits is None else list(hits)
    seed = sum(map(ord, name))
    return Episode(
        name, name, "proposer", 0, seed=seed, final=final, queries=list(queries), hits=shown, documents=list(documents)
    )


def noise(episode: Episode) -> list[Document]:
    return NOISE


def referee(
    answer: Callable[[str], str], prompts: list[str] | None = None, judge: AnswerJudge | None = None, **settings: Any
) -> Referee:
    """A referee whose verifier, on a scripted engine, answers `answer(prompt)`; the prompts are kept in `prompts`."""
    words, cfg = Words(), made(RefereeConfig, **settings)

    def script(ids: list[int], seed: int, turn: int) -> list[int]:
        prompt = words.decode(ids)
        if prompts is not None:
            prompts.append(prompt)
        return words.encode(answer(prompt))

    return Referee(cfg, MINI, on(ScriptedEngine(script), cfg, words), judge or AnswerJudge(), seed=3)


def on(engine: ScriptedEngine, cfg: RefereeConfig | None = None, words: Words | None = None) -> EngineVerifier:
    """A verifier on this engine that is spoken to in `mini`."""
    return EngineVerifier(engine, Renderer(MINI, words or Words()), cfg or RefereeConfig())  # type: ignore[arg-type]


def behind(line: Line, protocol: protocols.Protocol = MINI, **settings: Any) -> Referee:
    """A referee whose verifier is behind an endpoint."""
    cfg = made(RefereeConfig, verifier="judge", **settings)
    verifier = EndpointVerifier(line, Renderer(protocol, Words(), "plain"), cfg)  # type: ignore[arg-type]
    return Referee(cfg, protocol, verifier, AnswerJudge(), seed=3)
