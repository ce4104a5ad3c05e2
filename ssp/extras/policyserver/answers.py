"""A policy that answers questions, each as an evaluation plays it. Questions that come together are
played together."""

import asyncio
from collections.abc import Hashable
from itertools import islice
from typing import Any

from launch.policy import NamedPolicy
from ssp.base.episode import Episode, Outcome, Task, called
from ssp.base.errors import SspError, hold
from ssp.base.seeds import derive
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.rollout import rollout
from ssp.search.batcher import Batcher
from ssp.selfplay.workers import build

TOGETHER = 32
"""Questions that are played in one batch at most."""
WAITING = 1024
"""Questions that wait at most; more are refused."""
LONGEST = 65_536
"""Characters of a question, at most."""


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
        self._batch: Batcher[tuple[str, int], Episode, None] = Batcher(
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
        batch = self.heat if heat is None else heat
        playing = self._batch.submit(batch, [(question, seed)])
        patience = self._cfg.placement.call_timeout
        try:
            async with asyncio.timeout(patience):
                (episode,), _ = await asyncio.wrap_future(playing)
        except TimeoutError:
            raise SspError(f"no answer within {patience:g} s") from None
        if episode.outcome is Outcome.VOID:
            said = ": ".join(filter(None, (episode.cause, episode.detail)))
            raise SspError(f"the question could not be played: {said}")
        return episode

    def _play(self, heat: Hashable, asked: list[tuple[str, int]]) -> tuple[list[Episode], None]:
        """Play the questions of one temperature, each with its seed."""
        prompt = self._cfg.spec.examining.prompt
        tasks = []
        for i, (text, seed) in enumerate(asked):
            tasks.append(
                Task(
                    id=f"ask-{i}",
                    game="ask",
                    role=self._role,
                    attempt=i,
                    seed=derive(self._cfg.seed, "ask", text, seed),
                    fields={"question": text},
                    corpus=self._corpus,
                    prompt=prompt,
                )
            )
        settings = build.settings(self._cfg, self._role, heat)  # type: ignore[arg-type]
        return rollout(*self._parts, tasks, settings)[0], None


def searches(episode: Episode) -> list[dict[str, Any]]:
    """Each search that was carried out, with what it showed."""
    documents, told = iter(episode.documents), []
    queries = called(episode.queries, episode.tools)
    for query, hits in zip(queries, episode.hits, strict=True):
        shown = islice(documents, hits)
        rows = [{"id": one.id, "title": one.title, "text": one.text} for one in shown]
        told.append({"query": query, "documents": rows})
    return told
