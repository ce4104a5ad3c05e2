"""A policy that answers questions, each as an evaluation plays it. Questions that come together are
played together."""

import asyncio
import re
from concurrent.futures import Future
from itertools import islice
from typing import Any

import numpy as np

from launch.policy import NamedPolicy
from ssp.base.episode import Episode, Outcome, Task, called
from ssp.base.errors import SspError, hold
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.engines.base import Engine, FreeEngine, Generation, Sampling
from ssp.game import corpora
from ssp.game.protocols.bare import decode
from ssp.game.rollout import rollout
from ssp.game.rollout.chat import Refused
from ssp.game.rollout.player import AgentPlayer
from ssp.search.batcher import Batcher
from ssp.selfplay.workers import build

TOGETHER = 32
"""Questions that are played in one batch at most."""
WAITING = 1024
"""Questions that wait at most; more are refused."""
LONGEST = 65_536
"""Characters of a question, at most."""
CHAT = "chat/completions"
THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class OneByOne(FreeEngine):
    """A lock-step engine that takes a turn at a time, as an agent asks for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.version = engine.version

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """As the engine does."""
        self._engine.load(weights, version, keep)

    def open(self, seeds: list[int]) -> list[int]:
        """As the engine does."""
        return self._engine.open(seeds)

    def close(self, slots: list[int]) -> None:
        """As the engine does."""
        self._engine.close(slots)

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """The turn, which is over when this returns."""
        future: Future[Generation] = Future()
        future.set_result(self._engine.step([slot], [pending], sampling)[0])
        return future


class Answerer:
    """The policy that `named` names, and its search in `corpus` (None: as `ssp ask` takes it).
    `heat`: the temperature of a question that names none."""

    def __init__(self, cfg: Config, named: NamedPolicy, corpus: str | None, heat: float) -> None:
        threads.use(threads.alone(cfg))
        self._cfg, self._role, self.heat = cfg, cfg.spec.answerer, heat
        folder = named.folder(cfg)
        build.settings(cfg, self._role, heat)  # its tools and its agent are there
        self._corpus = corpus or (cfg.data.eval[0].corpus if cfg.data.eval else cfg.data.corpus)
        search = corpora.search(cfg, [self._corpus])
        build.check_model(cfg, self._role, folder)
        engine = build.engine(cfg.answering, folder)
        self._parts = (engine, build.renderer(cfg, self._role, folder), search)
        self._tokenizer = build.tokenizer(folder)
        self._batch: Batcher[tuple[Any, int], Any, None] = Batcher(
            self._play, TOGETHER, waiting=WAITING
        )

    def close(self) -> None:
        """End its thread; who waits gets an error."""
        self._batch.close()

    async def ask(self, question: str, heat: float | None = None, seed: int = 0) -> Episode:
        """The episode of a question: the same for the same question, temperature and seed, where
        the engine repeats itself. InputError for a question that cannot be asked; SspError for one
        that could not be played."""
        rule = f"a question has a word, and at most {LONGEST} characters"
        fits = question.split() and len(question) <= LONGEST
        hold(fits, rule, len(question), "ask another one")
        build.check_words(self._tokenizer, [question])
        episode = await self._waited("question", heat, question, seed)
        if episode.outcome is Outcome.VOID:
            said = ": ".join(filter(None, (episode.cause, episode.detail)))
            raise SspError(f"the question could not be played: {said}")
        return episode

    async def turn(
        self, what: str, body: dict[str, Any], heat: float | None = None, seed: int = 0
    ) -> dict[str, Any]:
        """One turn of the policy itself, as an agent gets it in an episode: the reply to `body`, a
        request to `/v1/<what>`. Refused for what cannot be done."""
        reply = await self._waited(what, heat, body, seed)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _waited(self, what: str, heat: float | None, asked: object, seed: int) -> Any:
        """What the thread that plays makes of a request."""
        key = (what, self.heat if heat is None else heat)
        playing = self._batch.submit(key, [(asked, seed)])
        patience = self._cfg.placement.call_timeout
        try:
            async with asyncio.timeout(patience):
                (made,), _ = await asyncio.wrap_future(playing)
        except TimeoutError:
            raise SspError(f"no answer within {patience:g} s") from None
        return made

    def _play(self, key: Any, asked: list[tuple[Any, int]]) -> tuple[list[Any], None]:
        """Play the questions, or take the turns, of one temperature, each with its seed."""
        what, heat = key
        settings = build.settings(self._cfg, self._role, heat)
        if what == "question":
            tasks = [self._task(i, text, seed) for i, (text, seed) in enumerate(asked)]
            return rollout(*self._parts, tasks, settings)[0], None
        engine, renderer, search = self._parts
        live = engine if isinstance(engine, FreeEngine) else OneByOne(engine)

        async def take(number: int, body: dict[str, Any], seed: int) -> Any:
            task = self._task(number, "", seed)
            player = AgentPlayer(live, renderer, search, task, settings)
            try:
                return await (player.chat(body) if what == CHAT else player.complete(body))
            except (ValueError, Refused, SspError) as error:
                return error
            finally:
                player.close()

        async def together() -> list[Any]:
            turns = [take(number, *one) for number, one in enumerate(asked)]
            return await asyncio.gather(*turns)

        return asyncio.run(together()), None

    def _task(self, number: int, text: str, seed: int) -> Task:
        return Task(
            id=f"ask-{number}",
            game="ask",
            role=self._role,
            attempt=number,
            seed=derive(self._cfg.seed, "ask", text, seed),
            fields={"question": text},
            corpus=self._corpus,
            prompt=self._cfg.spec.examining.prompt,
        )

    def cut(self, text: str, tokens: int | None) -> str:
        """The first `tokens` tokens of a text; None: all of it."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if tokens is None or len(ids) <= tokens:
            return text
        return decode(self._tokenizer, ids[:tokens])

    def thoughts(self, episode: Episode) -> str:
        """What the policy thought, all its turns together."""
        written = []
        for kind, start, end in episode.log.stretches():
            if kind is Kind.MODEL:
                written.append(decode(self._tokenizer, episode.log.ids[start:end]))
        return "\n".join(thought.strip() for thought in THOUGHT.findall("".join(written)))


def searches(episode: Episode) -> list[dict[str, Any]]:
    """Each search that was carried out, with what it showed."""
    documents, told = iter(episode.documents), []
    queries = called(episode.queries, episode.tools)
    for query, hits in zip(queries, episode.hits, strict=True):
        shown = islice(documents, hits)
        rows = [{"id": one.id, "title": one.title, "text": one.text} for one in shown]
        told.append({"query": query, "documents": rows})
    return told
