"""The stages of one round, each fanned out over a crew: play, verify, grade.

Promises that a worker's fault voids exactly the episodes of its block, and that these are issued
again as new ones, a bounded number of times and by the round's weights. An episode that is lost
after it was played is void. Results come in task order, and no job outlives a failure."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import Any, TypeVar

from ssp.base.crew import split
from ssp.base.episode import (
    EVAL,
    EVALUATION,
    GREEDY,
    Grade,
    Outcome,
    State,
    Task,
    Verdict,
)
from ssp.base.errors import Fault, SspError
from ssp.base.gamespec import Check, Grading, Marking, Play
from ssp.base.played import Block, Brief, Game, Subject
from ssp.base.seeds import derive
from ssp.base.values import Seconds
from ssp.config import crews
from ssp.config.schema import Config
from ssp.game import voids
from ssp.game.corpora import TRAIN
from ssp.game.declaration import called, fields, named, who_plays
from ssp.game.judge import Item
from ssp.learning import algorithms
from ssp.search.router import NO_CORPUS
from ssp.selfplay.admission import JUDGE, VERIFY, VoidGate
from ssp.selfplay.crews.cast import GONE, Cast
from ssp.selfplay.crews.seams import Judges
from ssp.selfplay.records import PlayOrder, Published
from ssp.selfplay.versions import WeightStore
from ssp.telemetry.clock import Clock

T = TypeVar("T")
V = TypeVar("V", Grade, Verdict)
Owned = list[tuple[Brief, Game]]

REISSUES = 5
"""How often one block of episodes is issued again after faults before the run gives up."""


class Stages:
    """Plays blocks of games on the crews of `cast`.

    `incarnation` marks the ids of this start of the run. `redraws` counts how often the run went
    back after a collapse, to which the same draws would lead again."""

    def __init__(self, cfg: Config, cast: Cast, gate: VoidGate, store: WeightStore) -> None:
        self._cfg = cfg
        self._cast = cast
        self._gate = gate
        self._store = store
        self._ledger = cast.ledger.first
        self._spec = cfg.spec
        answering = cfg.block(self._spec.answerer)
        self._greedy = algorithms.get(answering.algorithm).needs_greedy
        self.incarnation = self.redraws = 0

    async def play(
        self,
        stage: Play,
        round_: int,
        games: Sequence[Game],
        weights: Published,
        clock: Clock,
        again: int = 0,
    ) -> None:
        """Let a policy play its episodes of `stage` in each of `games`; one role plays them all. A
        game's episodes stay in one block, and so do questions about one row. `again`: number of
        the further batch in the round."""
        if not games:
            return
        role = who_plays(self._cfg, stage, games[0])
        asks = stage.name == self._spec.asks
        answers = stage.name == self._spec.answers
        times = stage.episodes(self._cfg)
        tasks = []
        for game in games:
            tasks += [self._task(stage, role, round_, game, number) for number in range(times)]
        named = role if asks or answers else f"{role}-{stage.name}"
        stem = self._stem(named, round_, again)
        temperature = self._cfg.block(role).sampling.temperature
        order = PlayOrder(temperature, f"{stem}{weights.past}", round_ + 1)
        together = self._cfg.game.proposals if asks else times
        played = await self._play(role, stage.name, tasks, order, weights, clock, together)
        for place, game in enumerate(games):
            episodes = played[place * times : (place + 1) * times]
            if asks:
                (game.proposal,) = episodes
            elif answers:
                game.attempts = episodes
                game.tried_by = weights.version
            else:
                game.others[stage.name] = episodes
        if asks:
            places = [{"id": one.id, "file": one.file, "row": one.row} for one in played]
            await self._ledger.advance(places, {"state": State.GRADING.value})
        if answers and self._greedy and not weights.past:
            # One more attempt at temperature 0, with which the estimator compares.
            tasks = [self._task(stage, role, round_, game, times, GREEDY) for game in games]
            order = PlayOrder(0.0, self._stem(f"{role}greedy", round_, again), round_ + 1)
            played = await self._play(role, GREEDY, tasks, order, weights, clock)
            for game, greedy in zip(games, played, strict=True):
                game.greedy = greedy

    async def check(
        self, stage: Check, games: Sequence[Game], live: Published | None, clock: Clock
    ) -> None:
        """Let the referee, or the game's own check, read what each game asks. A game that an
        earlier check refused stays refused. `live`: the weights that verify; None where the
        verifier has its own."""
        proposed = [(game.proposal, game) for game in games if game.proposal is not None]

        async def ask(
            judge: Judges, owned: Owned, live: Published | None
        ) -> tuple[list[Verdict], float]:
            block = owned[0][0].block.ref
            subjects = []
            for _, game in owned:
                searches = int(game.hints.get("searches") or 0)
                subjects.append(Subject(game.target, searches, game.hints.get("document", "")))
            if stage.by is not None:
                return await judge.check(block, subjects, stage.name)
            weights = () if live is None else (live.version, live.weights)
            asked = [(subject.target, subject.searches) for subject in subjects]
            return await judge.verify(block, asked, *weights)

        lost = Verdict(False)
        for proposal, game, verdict in await self._judged(VERIFY, proposed, ask, lost, clock, live):
            if game.refused:
                continue
            game.valid = verdict.valid
            game.rule = verdict.rule
            game.void_cause = verdict.void_cause
            game.question = verdict.question or game.question or proposal.final or ""
            game.target = verdict.answer or game.target
            game.source = verdict.source or game.source
            game.guide *= verdict.guide

    async def grade(self, stage: Grading, games: Sequence[Game], clock: Clock) -> None:
        """Let the judge, or the game itself, grade each episode of the stage that was played to
        its end. Voids get no grade."""
        ended: Owned = []
        for game in games:
            episodes = [*self._spec.episodes(game, stage.of)]
            if stage.of == self._spec.answers and game.greedy is not None:
                episodes.append(game.greedy)
            known = [one for one in episodes if one.outcome is not Outcome.VOID]
            # The answers of a given question are known, whoever grades the others.
            if stage.by is None or game.anchors:
                ended += [(one, game) for one in known]
                continue
            about = named(game)
            marking = called(self._cfg, stage.by, Marking, about, self._cfg, game, known)
            game.target = marking.label
            game.grades |= marking.grades

        async def ask(judge: Judges, owned: Owned, _: Any) -> tuple[list[Grade], float]:
            items = []
            for one, game in owned:
                golds = game.golds or (game.target,)
                items.append((one.row, Item(game.question, golds, None, game.rubric)))
            return await judge.grade(owned[0][0].block.ref, items)

        for one, game, grade in await self._judged(JUDGE, ended, ask, Grade(None), clock):
            game.grades[one.id] = grade

    async def evaluate(
        self, step: int, stem: str, tasks: Sequence[Task], weights: Published, clock: Clock
    ) -> list[Brief]:
        """Play evaluation tasks within the limits of update `step`; one brief a task, in order.
        They end kept, or voided."""
        answerer = self._spec.answerer
        order = PlayOrder(self._cfg.eval.temperature, stem, step)
        parts = 1
        # vLLM queues the episodes that its cache has no room for; the torch engine does not.
        if self._cfg.block(answerer).engine.traits.model == "needed":
            most = crews.evaluated(self._cfg) * self._cast.players[answerer].size
            parts = -(-len(tasks) // most)
        briefs: list[Brief] = []
        for part in split(tasks, parts):
            told = replace(order, stem=f"{stem}.{len(briefs)}") if briefs else order
            briefs += await self._play(answerer, EVALUATION, part, told, weights, clock)
        rows = []
        for brief in briefs:
            if brief.outcome is Outcome.VOID:
                row = brief.entry(State.VOIDED, Outcome.VOID, brief.cause)
            elif brief.final is None:
                row = brief.entry(State.KEPT, Outcome.REJECTED, brief.stopped)
            else:
                row = brief.entry(State.KEPT, Outcome.SCORED, "")
            rows.append(row)
        await self._ledger.advance(rows)
        return briefs

    def _stem(self, named: str, round_: int, again: int) -> str:
        """The start of the names of the files with a round's episodes."""
        further = f"x{again}" if again else ""
        return f"{named}-{round_:06d}{further}-i{self.incarnation}"

    def _task(
        self, stage: Play, role: str, round_: int, game: Game, number: int, kind: str = ""
    ) -> Task:
        """The task of a game's episode `number` at `stage`. Its draws depend on the prompt, not on
        the role's name; those of a question depend on its row alone."""
        if stage.name == self._spec.asks:
            id_ = f"p{game.id[1:]}"
            draw: tuple[str | int, ...] = (stage.prompt, game.number, 0)
        elif stage.name == self._spec.answers:
            id_ = f"s{game.id[1:]}{kind or f'a{number}'}-i{self.incarnation}"
            draw = (stage.prompt, round_, game.number, number)
        else:
            id_ = f"{stage.name}-{game.id[1:]}a{number}-i{self.incarnation}"
            draw = (stage.name, round_, game.number, number)
        if self.redraws:
            draw = (*draw, self.redraws)
        seed = derive(self._cfg.seed, *draw)
        row: dict[str, Any] = {}
        if self._cfg.block(role).agent:
            row = {"id": game.id, **game.row, "golds": list(game.golds or (game.target,))}
        return Task(
            id=id_,
            game=game.id,
            role=role,
            attempt=number,
            seed=seed,
            fields=fields(self._cfg, stage, game, number),
            corpus=NO_CORPUS if stage.closed else TRAIN,
            prompt=stage.prompt,
            row=row,
        )

    async def _play(
        self,
        role: str,
        kind: str,
        tasks: Sequence[Task],
        order: PlayOrder,
        weights: Published,
        clock: Clock,
        together: int = 1,
    ) -> list[Brief]:
        """Play tasks over the crew in contiguous blocks; one brief a task, in order. Each run of
        `together` tasks stays in one block."""
        started = time.perf_counter()
        crew = self._cast.players[role]
        groups = [tasks[i : i + together] for i in range(0, len(tasks), together)]
        jobs = []
        for worker, share in enumerate(split(groups, crew.size)):
            block = [*chain.from_iterable(share)]
            jobs.append(self._block(role, kind, worker, block, order, weights))
        results = await _together(jobs)
        clock.stage(crew.name, "play", started, [seconds for _, seconds in results])
        return [*chain.from_iterable(briefs for briefs, _ in results)]

    async def _block(
        self,
        policy: str,
        kind: str,
        worker: int,
        tasks: list[Task],
        order: PlayOrder,
        weights: Published,
    ) -> tuple[list[Brief], Seconds]:
        """Play one block on one worker, again after each fault: briefs, and seconds by part."""
        crew = self._cast.players[policy]
        told = kind != EVALUATION
        role = policy if told else EVAL
        running = {"role": role, "state": State.RUNNING.value, "round": order.step, "kind": kind}
        running |= {"incarnation": self.incarnation, "past": bool(weights.past)}
        for issue in range(REISSUES + 1):
            issued = [task.issued(issue) for task in tasks]
            named = replace(order, stem=f"{order.stem}-{worker}.{issue}")
            rows = [
                {"id": t.id, "game_id": t.game, "attempt": t.attempt, "item": t.item}
                for t in issued
            ]
            await self._ledger.create(rows, running | {"issue": issue})
            try:
                playing = crew[worker].play(issued, named, weights.version, weights.weights)
                block, report = await playing
            except Fault as fault:
                self._gate.record(fault.cause, len(issued), told=told)
                void = {"state": State.VOIDED.value, "outcome": Outcome.VOID.value}
                void["cause"] = fault.cause
                await self._ledger.advance([{"id": task.id} for task in issued], void)
                await self._gate.admit()
                if fault.cause == GONE:
                    weights = await self._store.mend(policy, weights, str(fault))
                continue
            self._store.note(policy, report.seconds)
            briefs = report.briefs
            if told:
                briefs = [voids.marked(self._cfg, brief) for brief in briefs]
            ends = [brief.cause if brief.outcome is Outcome.VOID else "" for brief in briefs]
            self._gate.record_all(ends, told=told)
            where = Block(named.stem, block)
            for brief in briefs:
                brief.block = where
            return briefs, report.seconds
        raise SspError(
            f"{crew.name}-{worker} failed {REISSUES + 1} times on the same block: see the log of"
            " that actor"
        )

    async def _judged(
        self,
        stage: str,
        items: Owned,
        ask: Callable[[Judges, Owned, Published | None], Awaitable[tuple[list[V], float]]],
        lost: V,
        clock: Clock,
        live: Published | None = None,
    ) -> list[tuple[Brief, Game, V]]:
        """Ask about each block of `items`; an answer for each item.

        A judge's call is pure: after a fault it is made again, on the next judge. The items of a
        block that no judge can read, as its node died, get `lost`. `live`: weights that the judge
        needs."""
        blocks: dict[str, Owned] = {}
        for played, game in items:
            blocks.setdefault(played.block.id, []).append((played, game))
        judges = self._cast.judges

        async def one(worker: int, owned: Owned) -> tuple[list[V], float]:
            weights = live
            cause = ""
            for issue in range(REISSUES + 1):
                try:
                    judge = judges[(worker + issue) % judges.size]
                    answers, seconds = await ask(judge, owned, weights)
                    break
                except Fault as fault:
                    cause = fault.cause
                    await self._gate.admit()
                    if weights is not None and cause == GONE:
                        weights = await self._store.mend(self._spec.answerer, weights, str(fault))
            else:
                if cause != GONE:
                    raise SspError(
                        f"the judges failed {issue + 1} times on the same call: see their actors'"
                        " logs"
                    )
                answers = [replace(lost, void_cause=cause)] * len(owned)
                seconds = 0.0
            ended = [played.outcome is not Outcome.VOID for played, _ in owned]
            causes = [answer.void_cause for answer in compress(answers, ended)]
            self._gate.record_all(causes, stage=stage)
            return answers, seconds

        started = time.perf_counter()
        results = await _together([one(i, owned) for i, owned in enumerate(blocks.values())])
        spent = [{stage: seconds, "busy": seconds} for _, seconds in results]
        clock.stage("judge", stage, started, spent)
        judged = []
        for owned, (answers, _) in zip(blocks.values(), results, strict=True):
            for (played, game), answer in zip(owned, answers, strict=True):
                judged.append((played, game, answer))
        return judged


async def _together(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run jobs at once: their results in order. Before the first failure is raised, the other jobs
    are cancelled and have ended."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
