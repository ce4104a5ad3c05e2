"""The stages of one round: propose, verify, solve, grade, each fanned out over a crew.

Owns the way of an episode from created to graded, ledger rows included. Promises that a fault of a worker, or a block that
is gone when it is to be judged, makes exactly its episodes void, that they are issued again as new episodes (bounded; by
the weights of the round, so no staler), that results come back in task order, and that nothing of a stage goes on once
the stage has failed. Refuses to know rewards, batches and learning.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ssp.base.crew import Crew, split
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
from ssp.base.seeds import derive
from ssp.config.schema import Config
from ssp.selfplay.admission import GRADE, VERIFY, VoidGate
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.lost import GONE
from ssp.selfplay.crews.seams import Judges, Players
from ssp.selfplay.records import Block, Brief, Game, Played, PlayOrder
from ssp.selfplay.settle import all_played
from ssp.selfplay.sync import LOST
from ssp.selfplay.versions import Match, Published, WeightStore
from ssp.telemetry.clock import Clock

T = TypeVar("T")

REISSUES = 5
"""How often one block of episodes is issued again after faults before the run gives up."""

LOSSES = 2
"""How often a round issues again what was lost after it had been played; what is lost once more stays void."""


@dataclass(frozen=True)
class Part:
    """Who plays: a crew, the kind of episodes, and how many tasks in a row stay in one block (a game's attempts)."""

    crew: Crew[Players]
    kind: str
    together: int = 1

    @property
    def role(self) -> str:
        """The role in the ledger."""
        return {PROPOSAL: PROPOSER, EVALUATION: EVAL}.get(self.kind, SOLVER)

    @property
    def policy(self) -> str:
        """The role whose weights play."""
        return PROPOSER if self.role == PROPOSER else SOLVER


class Stages:
    """Plays blocks of games on the crews of `cast`. `incarnation` marks the ids of this start of the run; `redraws` counts
    how often it went back after a collapse: the same draws would lead there again."""

    def __init__(self, cfg: Config, cast: Cast, gate: VoidGate, store: WeightStore) -> None:
        self._cfg, self._cast, self._gate, self._store = cfg, cast, gate, store
        self._ledger = cast.ledger.first
        self.incarnation = self.redraws = 0

    async def propose(
        self, round_: int, games: Sequence[Game], weights: Published, clock: Clock, again: int = 0, losses: int = 0
    ) -> None:
        """Let the proposer write a question for each game's target; sets `game.proposal`. `again`: n-th extra batch;
        `losses`: so often these games' proposals were lost."""
        tasks = [self._task(f"p{game.id[1:]}", game, PROPOSER, 0, game.number, 0) for game in games]
        stem = f"{PROPOSER}-{round_:06d}{f'x{again}' if again else ''}-i{self.incarnation}{weights.past}"
        order = PlayOrder(self._cfg.proposer.sampling.temperature, stem, round_ + 1)
        part = Part(self._cast.players[PROPOSER], PROPOSAL, together=self._cfg.game.proposals)
        played = await self._play(part, tasks, order, weights, clock, losses)
        for game, proposal in zip(games, played, strict=True):
            game.proposal = proposal
        await self._ledger.advance(
            [{"id": p.brief.id, "state": State.GRADING.value, "file": p.brief.file, "row": p.brief.row} for p in played]
        )

    async def verify(
        self, round_: int, asked: Sequence[Match], solver: Published, clock: Clock, again: int = 0
    ) -> None:
        """Let the referee check each proposal; sets `valid`, `rule`, `void_cause` and `question`. A lost one is written
        again by whose it was; `again` as in `propose`."""
        await self._verify([game for _, games in asked for game in games], solver, clock)
        for losses in range(1, LOSSES + 1):
            gone = [(weights, [game for game in games if game.void_cause == GONE]) for weights, games in asked]
            lost = [game for _, games in gone for game in games]
            if not lost:
                return
            await self._void([game.proposal for game in lost if game.proposal])
            for weights, games in gone:
                if games:
                    await self.propose(round_, games, weights, clock, again, losses)
            await self._verify(lost, solver, clock)

    async def _verify(self, games: Sequence[Game], solver: Published, clock: Clock) -> None:
        live = solver if self._cfg.referee.verifier == "solver" else None
        blocks: dict[str, tuple[Any, list[Game]]] = {}
        for game in games:
            assert game.proposal is not None
            block = game.proposal.block
            blocks.setdefault(block.id, (block.ref, []))[1].append(game)

        async def one(worker: int, block: Any, owned: list[Game]) -> float:
            targets = [game.target for game in owned]

            async def ask(judge: Judges, live: Published | None) -> tuple[list[Verdict], float]:
                return await judge.verify(block, targets, *(() if live is None else (live.version, live.weights)))

            try:
                verdicts, seconds = await self._judged(worker, ask, live)
            except Fault as lost:
                verdicts, seconds = [Verdict(False, void_cause=lost.cause)] * len(owned), 0.0
            for game, verdict in zip(owned, verdicts, strict=True):
                game.valid, game.rule, game.void_cause = verdict.valid, verdict.rule, verdict.void_cause
                assert game.proposal is not None
                game.question = game.proposal.brief.final or ""
            played = [game for game in owned if game.proposal and game.proposal.brief.outcome is not Outcome.VOID]
            self._gate.record_all([game.void_cause for game in played], stage=VERIFY)
            return float(seconds)

        started = time.perf_counter()
        seconds = await _together([one(i, *pair) for i, pair in enumerate(blocks.values())])
        clock.stage("judge", "verify", started, [{"verify": s, "busy": s} for s in seconds])

    async def solve(
        self, round_: int, games: Sequence[Game], weights: Published, clock: Clock, losses: int = 0
    ) -> None:
        """Let the solver try each question until there are n attempts; sets `attempts`. A game's attempts stay in one block.
        `losses` as in `propose`."""
        tasks = [
            self._attempt(f"a{attempt}", round_, game, attempt)
            for game in games
            for attempt in sorted(
                {*range(self._cfg.game.attempts)} - {played.brief.attempt for played in game.attempts}
            )
        ]
        stem = f"{SOLVER}-{round_:06d}-i{self.incarnation}{weights.past}"
        order = PlayOrder(self._cfg.solver.sampling.temperature, stem, round_ + 1)
        by_game = {game.id: game for game in games}
        part = Part(self._cast.players[SOLVER], ATTEMPT, together=self._cfg.game.attempts)
        for played in await self._play(part, tasks, order, weights, clock, losses):
            game = by_game[played.brief.game]
            game.attempts.append(played)
            game.solver_version = weights.version
        if losses:
            for game in games:
                game.attempts.sort(key=lambda played: played.brief.attempt)
        if self._cfg.solver.algorithm == "remax" and not weights.past:
            without = {id_: game for id_, game in by_game.items() if game.greedy is None}
            await self._answer_greedily(round_, without, weights, clock, losses)

    async def _answer_greedily(
        self, round_: int, games: dict[str, Game], weights: Published, clock: Clock, losses: int
    ) -> None:
        """One attempt more at each question, whose reward is the others' baseline; sets `greedy`."""
        tasks = [self._attempt("greedy", round_, game, self._cfg.game.attempts) for game in games.values()]
        order = PlayOrder(0.0, f"{SOLVER}greedy-{round_:06d}-i{self.incarnation}", round_ + 1)
        for played in await self._play(Part(self._cast.players[SOLVER], GREEDY), tasks, order, weights, clock, losses):
            games[played.brief.game].greedy = played

    async def grade(self, round_: int, games: Sequence[Game], solver: Published, clock: Clock) -> None:
        """Let the judge decide each attempt that was played to its end; sets `grades`. Voids stay without a grade. A lost
        one is made again by `solver`, of whom the others are too (law 4)."""
        await self._grade(games, clock)
        for losses in range(1, LOSSES + 1):
            lost = {id_ for game in games for id_, grade in game.grades.items() if grade.void_cause == GONE}
            if not lost:
                return
            await self._void([played for played in all_played(games) if played.brief.id in lost])
            for game in games:
                game.grades = {id_: grade for id_, grade in game.grades.items() if id_ not in lost}
                game.attempts = [played for played in game.attempts if played.brief.id not in lost]
                game.greedy = None if game.greedy and game.greedy.brief.id in lost else game.greedy
            await self.solve(round_, games, solver, clock, losses)
            await self._grade(games, clock)

    async def _grade(self, games: Sequence[Game], clock: Clock) -> None:
        blocks: dict[str, tuple[Any, list[tuple[Game, Played]]]] = {}
        for game in games:
            for played in [*game.attempts, *([game.greedy] if game.greedy else [])]:
                if played.brief.outcome is not Outcome.VOID and played.brief.id not in game.grades:
                    blocks.setdefault(played.block.id, (played.block.ref, []))[1].append((game, played))

        async def one(worker: int, block: Any, owned: list[tuple[Game, Played]]) -> float:
            items = [(played.index, game.question, game.golds or (game.target,)) for game, played in owned]
            try:
                grades, seconds = await self._judged(worker, lambda judge, _: judge.grade(block, items))
            except Fault as lost:
                grades, seconds = [Grade(None, void_cause=lost.cause)] * len(items), 0.0
            for (game, played), grade in zip(owned, grades, strict=True):
                game.grades[played.brief.id] = grade
            self._gate.record_all([grade.void_cause for grade in grades], stage=GRADE)
            return float(seconds)

        started = time.perf_counter()
        seconds = await _together([one(i % self._cast.judges.size, *pair) for i, pair in enumerate(blocks.values())])
        clock.stage("judge", "judge", started, [{"judge": s, "busy": s} for s in seconds])

    async def evaluate(
        self, step: int, stem: str, tasks: Sequence[Task], weights: Published, clock: Clock
    ) -> list[Brief]:
        """Play evaluation tasks on the solvers, within the limits of update `step`; one brief a task, in order."""
        order = PlayOrder(self._cfg.eval.temperature, stem, step)
        part = Part(self._cast.players[SOLVER], EVALUATION)
        return [played.brief for played in await self._play(part, tasks, order, weights, clock)]

    async def keep(self, briefs: Sequence[Brief]) -> None:
        """Evaluation episodes end as `kept` (or voided)."""
        await self._ledger.advance([kept(brief) for brief in briefs])

    def _attempt(self, name: str, round_: int, game: Game, attempt: int) -> Task:
        id_ = f"s{game.id[1:]}{name}-i{self.incarnation}"
        return self._task(id_, game, SOLVER, attempt, round_, game.number, attempt)

    def _task(self, id_: str, game: Game, role: str, attempt: int, *draw: int) -> Task:
        """One episode; `draw` names its draws."""
        fields = {"target": game.target, **game.hints} if role == PROPOSER else {"question": game.question}
        seed = derive(self._cfg.seed, role, *draw, *([self.redraws] if self.redraws else []))
        return Task(id=id_, game=game.id, role=role, attempt=attempt, seed=seed, fields=fields)

    async def _play(
        self, part: Part, tasks: Sequence[Task], order: PlayOrder, weights: Published, clock: Clock, losses: int = 0
    ) -> list[Played]:
        """Play `tasks` over the crew, in contiguous blocks; one `Played` a task, in order."""
        started = time.perf_counter()
        groups = [tasks[i : i + part.together] for i in range(0, len(tasks), part.together)]
        blocks = [[task for group in share for task in group] for share in split(groups, part.crew.size)]
        first = losses * (REISSUES + 1)
        results = await _together(
            [self._block(part, i, block, order, weights, first) for i, block in enumerate(blocks)]
        )
        clock.stage(part.crew.name, "play", started, [seconds for _, seconds in results])
        return [played for block, _ in results for played in block]

    async def _block(
        self, part: Part, worker: int, tasks: list[Task], order: PlayOrder, weights: Published, first: int
    ) -> tuple[list[Played], dict[str, float]]:
        crew = part.crew
        for issue in range(first, first + REISSUES + 1):
            issued = [task.issued(issue) for task in tasks]
            named = replace(order, stem=f"{order.stem}-{worker}.{issue}")
            running = {
                "role": part.role,
                "state": State.RUNNING.value,
                "round": order.step,
                "kind": part.kind,
                "issue": issue,
                "incarnation": self.incarnation,
                "past": bool(weights.past),
            }
            rows = [{"id": t.id, "game_id": t.game, "attempt": t.attempt, "item": t.item, **running} for t in issued]
            await self._ledger.create(rows)
            try:
                block, report = await crew[worker].play(issued, named, weights.version, weights.weights)
            except Fault as fault:
                await self._lost([task.id for task in issued], fault, part)
                await self._gate.admit()
                if fault.cause in LOST:
                    weights = await self._store.mend(part.policy, weights, str(fault))
                continue
            self._store.sync.note(part.policy, report.seconds)
            ends = [brief.cause if brief.outcome is Outcome.VOID else "" for brief in report.briefs]
            self._gate.record_all(ends, told=part.role != EVAL)
            where = Block(named.stem, block)
            return [Played(brief, where, index) for index, brief in enumerate(report.briefs)], report.seconds
        raise SspError(f"{crew.name}-{worker} failed {REISSUES + 1} times on the same block: see the log of that actor")

    async def _lost(self, ids: Sequence[str], fault: Fault, part: Part) -> None:
        self._gate.record(fault.cause, len(ids), told=part.role != EVAL)
        rows = [
            {"id": id_, "state": State.VOIDED.value, "outcome": Outcome.VOID.value, "cause": fault.cause} for id_ in ids
        ]
        await self._ledger.advance(rows)

    async def _void(self, lost: Sequence[Played]) -> None:
        """Episodes that were played, and whose block is gone."""
        await self._ledger.advance([p.brief.entry(State.VOIDED, Outcome.VOID, GONE) for p in lost])

    async def _judged(
        self, worker: int, ask: Callable[[Judges, Published | None], Awaitable[T]], live: Published | None = None
    ) -> T:
        """A judge's call is pure: after a fault it is simply made again, on the next judge. `live`: weights it needs.

        Fault `payload_lost` when it is the block that no judge gets: its node died, and what was in it is void.
        """
        judges = self._cast.judges
        fault = Fault("")
        for issue in range(REISSUES + 1):
            try:
                return await ask(judges[(worker + issue) % judges.size], live)
            except Fault as found:
                fault = found
                await self._gate.admit()
                if live is not None and fault.cause in LOST:
                    live = await self._store.mend(SOLVER, live, str(fault))
        if fault.cause == GONE:
            raise fault
        raise SspError(f"the judges failed {REISSUES + 1} times on the same call: see their actors' logs")


async def _together(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; at the first failure the other jobs are cancelled, and have ended, before it is raised."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def kept(brief: Brief) -> dict[str, Any]:
    """The ledger row of an evaluation episode."""
    if brief.outcome is Outcome.VOID:
        return brief.entry(State.VOIDED, Outcome.VOID, brief.cause)
    if brief.final is None:
        return brief.entry(State.KEPT, brief.outcome or Outcome.REJECTED, brief.cause or brief.stopped)
    return brief.entry(State.KEPT, brief.outcome or Outcome.SCORED, brief.cause)
