"""The stages of one round: propose, verify, solve, grade, each fanned out over a crew.

Promises that a worker's fault makes exactly its block's episodes void, which are issued again as
new ones (bounded; by the round's weights), that what is lost once played is void, that results come
in task order, and that no job outlives a failure."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, TypeVar

from ssp.base.crew import split
from ssp.base.episode import (
    ATTEMPT,
    EVAL,
    EVALUATION,
    GREEDY,
    PROPOSAL,
    PROPOSER,
    SOLVER,
    Grade,
    Outcome,
    State,
    Task,
    Verdict,
)
from ssp.base.errors import Fault, SspError
from ssp.base.played import Block, Brief, Game
from ssp.base.seeds import derive
from ssp.config import crews
from ssp.config.schema import Config
from ssp.game.judge import Item
from ssp.learning import algorithms
from ssp.selfplay.admission import JUDGE, VERIFY, VoidGate
from ssp.selfplay.crews.cast import GONE, Cast
from ssp.selfplay.crews.seams import Judges
from ssp.selfplay.records import Match, PlayOrder, Published
from ssp.selfplay.versions import WeightStore
from ssp.telemetry.clock import Clock

T = TypeVar("T")
V = TypeVar("V", Grade, Verdict)
Owned = list[tuple[Brief, Game]]

REISSUES = 5
"""How often one block of episodes is issued again after faults before the run gives up."""


class Stages:
    """Plays blocks of games on the crews of `cast`. `incarnation` marks the ids of this start of
    the run; `redraws` counts how often it went back after a collapse: the same draws would lead
    there again."""

    def __init__(self, cfg: Config, cast: Cast, gate: VoidGate, store: WeightStore) -> None:
        self._cfg, self._cast, self._gate, self._store = cfg, cast, gate, store
        self._ledger = cast.ledger.first
        self._greedy = algorithms.get(cfg.solver.algorithm).needs_greedy
        self.incarnation = self.redraws = 0

    async def propose(
        self, round_: int, games: Sequence[Game], weights: Published, clock: Clock, again: int = 0
    ) -> None:
        """Let the proposer write a question for each game's target: sets `proposal`. `again`: n-th
        extra batch."""
        tasks = [self._task(f"p{game.id[1:]}", game, PROPOSER, 0, game.number, 0) for game in games]
        stem = f"{PROPOSER}-{round_:06d}{f'x{again}' if again else ''}-i{self.incarnation}{weights.past}"
        order = PlayOrder(self._cfg.proposer.sampling.temperature, stem, round_ + 1)
        played = await self._play(PROPOSAL, tasks, order, weights, clock, self._cfg.game.proposals)
        for game, proposal in zip(games, played, strict=True):
            game.proposal = proposal
        places = [{"id": one.id, "file": one.file, "row": one.row} for one in played]
        await self._ledger.advance(places, {"state": State.GRADING.value})

    async def verify(self, asked: Sequence[Match], solver: Published, clock: Clock) -> None:
        """Let the referee check each proposal; sets `valid`, `rule`, `void_cause` and
        `question`."""
        proposed = [(game.proposal, game) for _, games in asked for game in games if game.proposal]
        live = solver if self._cfg.referee.verifier == "solver" else None

        async def ask(
            judge: Judges, owned: Owned, live: Published | None
        ) -> tuple[list[Verdict], float]:
            weights = () if live is None else (live.version, live.weights)
            asked = [(game.target, int(game.hints.get("searches") or 0)) for _, game in owned]
            return await judge.verify(owned[0][0].block.ref, asked, *weights)

        for proposal, game, verdict in await self._judged(
            VERIFY, proposed, ask, Verdict(False), clock, live
        ):
            game.valid, game.rule, game.void_cause = verdict.valid, verdict.rule, verdict.void_cause
            game.question, game.guide = proposal.final or "", verdict.guide

    async def solve(
        self, round_: int, games: Sequence[Game], weights: Published, clock: Clock, again: int = 0
    ) -> None:
        """Let the solver try each question n times; sets `attempts`. A game's attempts stay in one
        block. Where the estimator compares with a greedy answer, one attempt more; sets `greedy`.
        `again`: n-th further batch."""
        n, stem = (
            self._cfg.game.attempts,
            f"{round_:06d}{f'x{again}' if again else ''}-i{self.incarnation}",
        )
        tasks = [
            self._attempt(f"a{attempt}", round_, game, attempt)
            for game in games
            for attempt in range(n)
        ]
        order = PlayOrder(
            self._cfg.solver.sampling.temperature, f"{SOLVER}-{stem}{weights.past}", round_ + 1
        )
        played = await self._play(ATTEMPT, tasks, order, weights, clock, n)
        for place, game in enumerate(games):
            game.attempts, game.solver_version = (
                played[place * n : (place + 1) * n],
                weights.version,
            )
        if self._greedy and not weights.past:
            tasks = [self._attempt("greedy", round_, game, n) for game in games]
            order = PlayOrder(0.0, f"{SOLVER}greedy-{stem}", round_ + 1)
            for game, greedy in zip(
                games, await self._play(GREEDY, tasks, order, weights, clock), strict=True
            ):
                game.greedy = greedy

    async def grade(self, tried: Sequence[Match], clock: Clock) -> None:
        """Let the judge decide each attempt that was played to its end; sets `grades`. Voids stay
        without a grade."""
        played = [
            (one, game)
            for _, games in tried
            for game in games
            for one in (*game.attempts, game.greedy)
            if one
        ]
        ended = [(one, game) for one, game in played if one.outcome is not Outcome.VOID]

        async def ask(judge: Judges, owned: Owned, _: Any) -> tuple[list[Grade], float]:
            items = [
                (one.row, Item(game.question, game.golds or (game.target,), None, game.rubric))
                for one, game in owned
            ]
            return await judge.grade(owned[0][0].block.ref, items)

        for one, game, grade in await self._judged(JUDGE, ended, ask, Grade(None), clock):
            game.grades[one.id] = grade

    async def evaluate(
        self, step: int, stem: str, tasks: Sequence[Task], weights: Published, clock: Clock
    ) -> list[Brief]:
        """Play evaluation tasks within the limits of update `step`; one brief a task, in order.
        They end kept, or voided."""
        order = PlayOrder(self._cfg.eval.temperature, stem, step)
        briefs, size = list[Brief](), crews.evaluated(self._cfg) * self._cast.players[SOLVER].size
        # vLLM lets those wait that its cache has no room for
        bounded = self._cfg.solver.engine.kind == "torch"
        for part in split(tasks, -(-len(tasks) // size) if bounded else 1):
            told = replace(order, stem=f"{stem}.{len(briefs)}") if briefs else order
            briefs += await self._play(EVALUATION, part, told, weights, clock)
        rows = []
        for brief in briefs:
            end = (
                (Outcome.SCORED, "")
                if brief.final is not None
                else (Outcome.REJECTED, brief.stopped)
            )
            void = brief.outcome is Outcome.VOID
            rows.append(
                brief.entry(
                    *((State.VOIDED, Outcome.VOID, brief.cause) if void else (State.KEPT, *end))
                )
            )
        await self._ledger.advance(rows)
        return briefs

    def _attempt(self, name: str, round_: int, game: Game, attempt: int) -> Task:
        id_ = f"s{game.id[1:]}{name}-i{self.incarnation}"
        return self._task(id_, game, SOLVER, attempt, round_, game.number, attempt)

    def _task(self, id_: str, game: Game, role: str, attempt: int, *draw: int) -> Task:
        """One episode; `draw` names its draws."""
        fields = (
            {"target": game.target, **game.hints}
            if role == PROPOSER
            else {"question": game.question}
        )
        seed = derive(self._cfg.seed, role, *draw, *([self.redraws] if self.redraws else []))
        return Task(id=id_, game=game.id, role=role, attempt=attempt, seed=seed, fields=fields)

    async def _play(
        self,
        kind: str,
        tasks: Sequence[Task],
        order: PlayOrder,
        weights: Published,
        clock: Clock,
        together: int = 1,
    ) -> list[Brief]:
        """Play over the crew, in contiguous blocks that keep `together` tasks in a row in one; one
        brief a task."""
        started, crew = (
            time.perf_counter(),
            self._cast.players[PROPOSER if kind == PROPOSAL else SOLVER],
        )
        groups = [tasks[i : i + together] for i in range(0, len(tasks), together)]
        blocks = [[task for group in share for task in group] for share in split(groups, crew.size)]
        results = await _together(
            [self._block(kind, i, block, order, weights) for i, block in enumerate(blocks)]
        )
        clock.stage(crew.name, "play", started, [seconds for _, seconds in results])
        return [played for block, _ in results for played in block]

    async def _block(
        self, kind: str, worker: int, tasks: list[Task], order: PlayOrder, weights: Published
    ) -> tuple[list[Brief], dict[str, float]]:
        policy = PROPOSER if kind == PROPOSAL else SOLVER
        crew, told = self._cast.players[policy], kind != EVALUATION
        running = {
            "role": policy if told else EVAL,
            "state": State.RUNNING.value,
            "round": order.step,
            "kind": kind,
        }
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
                block, report = await crew[worker].play(
                    issued, named, weights.version, weights.weights
                )
            except Fault as fault:
                self._gate.record(fault.cause, len(issued), told=told)
                void = {
                    "state": State.VOIDED.value,
                    "outcome": Outcome.VOID.value,
                    "cause": fault.cause,
                }
                await self._ledger.advance([{"id": task.id} for task in issued], void)
                await self._gate.admit()
                if fault.cause == GONE:
                    weights = await self._store.mend(policy, weights, str(fault))
                continue
            self._store.note(policy, report.seconds)
            ends = [brief.cause if brief.outcome is Outcome.VOID else "" for brief in report.briefs]
            self._gate.record_all(ends, told=told)
            where = Block(named.stem, block)
            return [replace(brief, block=where) for brief in report.briefs], report.seconds
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
        """`ask` about each block of `items`. A judge's call is pure: after a fault it is made
        again, on the next judge. What is in a block that no judge gets, as its node died, is
        `lost`. `live`: weights that the judge needs."""
        blocks: dict[str, Owned] = {}
        for played, game in items:
            blocks.setdefault(played.block.id, []).append((played, game))
        judges = self._cast.judges

        async def one(worker: int, owned: Owned) -> tuple[list[V], float]:
            weights, cause = live, ""
            for issue in range(REISSUES + 1):
                try:
                    found, seconds = await ask(
                        judges[(worker + issue) % judges.size], owned, weights
                    )
                    break
                except Fault as fault:
                    cause = fault.cause
                    await self._gate.admit()
                    if weights is not None and cause == GONE:
                        weights = await self._store.mend(SOLVER, weights, str(fault))
            else:
                if cause != GONE:
                    raise SspError(
                        f"the judges failed {issue + 1} times on the same call: see their actors'"
                        " logs"
                    )
                found, seconds = [replace(lost, void_cause=cause)] * len(owned), 0.0
            ended = [played.outcome is not Outcome.VOID for played, _ in owned]
            self._gate.record_all([each.void_cause for each in compress(found, ended)], stage=stage)
            return found, seconds

        started = time.perf_counter()
        results = await _together([one(i, owned) for i, owned in enumerate(blocks.values())])
        clock.stage(
            "judge", stage, started, [{stage: seconds, "busy": seconds} for _, seconds in results]
        )
        return [
            (played, game, found)
            for owned, (said, _) in zip(blocks.values(), results, strict=True)
            for (played, game), found in zip(owned, said, strict=True)
        ]


async def _together(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; at the first failure the other jobs are cancelled, and have ended,
    before it is raised."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
