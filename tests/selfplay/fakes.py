"""Shared fakes of the self-play tests: scripted policies over a real world, crews that fail on order, a fake learner.

The seam: `local_cast` builds the real workers; only `build.engine`, `build.tokenizer` and the learner class are replaced
(`scripted`). Engines play one script for every role, told apart by the prompt.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from ssp.base.crew import Around, Crew, CrewCall
from ssp.base.episode import PROPOSER, SOLVER, Document, Grade, Outcome, State, Task
from ssp.base.errors import Fault
from ssp.base.played import Block, Brief, Game
from ssp.base.seeds import generator
from ssp.config import crews
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.data.readers import Question
from ssp.engines import ScriptedEngine
from ssp.game.world import tokenizer
from ssp.game.world.generator import World
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.search.router import Corpus, LocalFleet, Router
from ssp.search.shard import Shard, in_memory
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.evaluator import Evaluator, QuestionSet
from ssp.selfplay.report import Report
from ssp.selfplay.targets import TargetRow, Targets
from ssp.selfplay.workers import build
from ssp.selfplay.workers.learner import SimulatedLearner
from tests import local

SEED = 11
FINAL = {state.value for state in State if state.final}
MODEL = Path("no-model")


@lru_cache(maxsize=1)
def world() -> World:
    return World(SEED)


@lru_cache(maxsize=1)
def tokens() -> Any:
    return tokenizer.build()


@lru_cache(maxsize=1)
def index() -> list[Shard]:
    return in_memory(world().documents(), shards=2)


def search(corpora: tuple[str, ...] = ("train",)) -> Router:
    return Router({name: Corpus(index()[0].retriever, LocalFleet(index())) for name in corpora})


# policies


def proposer(target: str, read: str, seed: int) -> str:
    """Searches the target, asks for it by a fact that it read; now and then hands in nothing, or leaks."""
    if not read:
        return "nothing" if seed % 11 == 0 else f"<search> {target} </search>"
    facts = [f for f in re.findall(r"(\S+) (\S+) (\S+) \.", read) if f[2] == target and f[0] != target]
    if not facts or seed % 7 == 0:
        return f"<question> {target} seat ? </question>"  # leakage
    entity, relation, _ = facts[seed % len(facts)]
    return f"<question> {entity} {relation} ? </question>"


def solver(question: str, read: str, seed: int) -> str:
    """Looks the entity up; two thirds of the answers are right."""
    entity, relation = question.split()[:2]
    if not read:
        return "nothing" if seed % 13 == 0 else f"<search> {entity} </search>"
    found = re.search(rf"{entity} {relation} (\S+) \.", read)
    answer = found.group(1) if found and seed % 3 else entity
    return f"<answer> {answer} </answer>"


def verifier(question: str, read: str) -> str:
    entity, relation = question.split()[:2]
    found = re.search(rf"{entity} {relation} (\S+) \.", read)
    if found is None:
        return "<answer> none </answer>"
    return f"<think> {entity} {relation} {found.group(1)} </think> <answer> {found.group(1)} </answer>"


def script(ids: list[int], seed: int, turn: int) -> list[int]:
    """Every role's policy; the prompt says which one is asked."""
    text = tokens().decode(ids)
    asked = re.search(r"<q> (.*?) </q>", text)
    if text.startswith("<information>") and asked:
        said = verifier(asked.group(1), text)
    elif asked:
        said = solver(asked.group(1), text.split("</q>", 1)[1].strip(), seed)
    else:
        target = text.split()[1]
        said = proposer(target, text.split("</target>", 1)[1].strip(), seed)
    return list(tokens().encode(said + " <eos>", add_special_tokens=False))


class FakeLearner(SimulatedLearner):
    """Counts updates; its only weight is the number of updates in its lineage. `fail_at`: calls that die, by name."""

    calls: Counter[str] = Counter()
    fail_at: dict[str, set[int]] = {}
    seen: list[tuple[str, int, list[str]]] = []

    def __init__(self, cfg: Config, role: str, model_dir: Path) -> None:
        self.role, self.updates = role, 0

    @classmethod
    def reset(cls) -> None:
        cls.calls, cls.fail_at, cls.seen = Counter(), {}, []

    def _maybe_die(self, method: str) -> None:
        name = f"{self.role}/{method}"
        FakeLearner.calls[name] += 1
        if FakeLearner.calls[name] in FakeLearner.fail_at.get(name, set()):
            self.updates = 0  # its process is gone, and with it its state
            raise Fault(f"learner-{self.role}_died")

    def exported(self) -> dict[str, np.ndarray]:
        return {"w": np.array([self.updates], np.float32)}

    def weights(self) -> Any:
        self._maybe_die("weights")
        return super().weights()

    def update(
        self, samples: dict[str, Any], names: list[str], *blocks: Any
    ) -> tuple[Any, dict[str, dict[str, float]]]:
        """One update for all roles of `samples`, which have a row each in `seen`."""
        self._maybe_die("update")
        self.updates += 1
        by_name = dict(zip(names, blocks, strict=True))
        for role, mine in samples.items():
            episodes = [by_name[sample.block][sample.row] for sample in mine]
            assert [episode.id for episode in episodes] == [sample.id for sample in mine]
            assert all(e.role == role and e.outcome is not Outcome.VOID and len(e.log) for e in episodes)
            FakeLearner.seen.append((role, self.updates, [e.id for e in episodes]))
        parcel, figures = super().weights()
        return parcel, {role: {**figures, "loss": 0.0, "tokens": 1.0, "busy": 0.0} for role in samples}

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        self._maybe_die("save")
        os.makedirs(folder)
        (Path(folder) / "ssp.json").write_text(json.dumps({**meta, "step": self.updates}))

    def export(self, folder: str, meta: dict[str, Any]) -> None:
        self._maybe_die("export")
        super().export(folder, meta)

    def load(self, folder: str) -> None:
        self._maybe_die("load")
        self.updates = json.loads((Path(folder) / "ssp.json").read_text())["step"]


# crews


class FaultyCrew(Around[Any]):
    """A crew whose calls fail on order: `fails(worker, method, count, args)` → cause or "". Yields to the loop a seeded
    number of times before and after each call, so that rounds really overlap. What may be repeated is, as by `RayCrew`."""

    def __init__(self, inner: Crew[Any], fails: Callable[..., str] = lambda *a: "", jitter: int | None = None) -> None:
        super().__init__(inner)
        self.fails, self.counts, self.calls = fails, Counter[str](), []
        self._rng = None if jitter is None else generator(jitter, self.name)

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        method = call.name
        self.counts[method] += 1
        self.calls.append((worker, method, args))
        await self._wait()
        for left in reversed(range(4 if call.repeats else 1)):
            cause = self.fails(worker, method, self.counts[method], args)
            if not cause:
                break
            if not left:
                raise Fault(cause)
        answer = await self.inner.perform(worker, call, *args)
        await self._wait()
        return answer

    async def _wait(self) -> None:
        for _ in range(0 if self._rng is None else int(self._rng.integers(8))):
            await asyncio.sleep(0)


def on_calls(method: str, *numbers: int, cause: str = "worker_died") -> Callable[..., str]:
    """Fails the given calls (from 1) of one method."""
    return lambda worker, name, count, args: cause if name == method and count in numbers else ""


# a whole game


class Sink:
    def __init__(self) -> None:
        self.rows: list[tuple[int, str, dict[str, float]]] = []
        self.events: list[str] = []
        self.restarts: list[int] = []
        self.earlier: list[dict[str, Any]] = []

    def restart(self, step: int) -> None:
        self.restarts.append(step)

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        self.rows.append((step, role, dict(values)))

    def event(self, text: str) -> None:
        self.events.append(text)

    def span(self, track: str, name: str, start: float, end: float) -> None:
        assert end >= start

    def samples(self, step: int, rows: Any) -> None:
        self.sampled = step, rows

    def steps(self, role: str) -> list[int]:
        return [step for step, name, _ in self.rows if name == role]


def config(bounds: tuple[int, int] = (0, 0), **changes: Any) -> Config:
    """A small game; `bounds`: of staleness, in the order of `ROLES`; `changes` are dotted keys with `__` for the dot."""
    cfg = Config(seed=5, steps=3)
    cfg.schedule.max_staleness = dict(zip(("proposer", "solver"), bounds, strict=True))
    cfg.proposer.batch, cfg.solver.batch, cfg.game.attempts = 8, 6, 4
    cfg.save.every, cfg.eval.every, cfg.eval.hops = 1, 2, (1,)
    cfg.eval.final_questions_per_hop = 5
    cfg.void.limit = 1.0
    cfg.referee.alarm_patience = 1000
    for key, value in changes.items():
        *path, last = key.split("__")
        block: Any = cfg
        for name in path:
            block = getattr(block, name)
        if isinstance(block, dict):  # of values by role
            assert last in block, key
            block[last] = value
        else:
            assert hasattr(block, last), key
            setattr(block, last, value)
    return cfg


def room_for(items: int, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """No setting: queues have room for so many episodes."""
    patch.setattr(crews, "QUEUE_ITEMS", items)
    return {}


class Stage:
    """One run folder with all that a `SelfPlay` is wired to."""

    def __init__(
        self, cfg: Config, path: Path, searcher: Any = None, jitter: int | None = None, model: Path = MODEL
    ) -> None:
        self.cfg, self.folder, self.sink = cfg, RunFolder(path), Sink()
        for made in (self.folder.path, self.folder.episodes, self.folder.checkpoints):
            made.mkdir(parents=True, exist_ok=True)
        models = dict.fromkeys(cfg.roles, model)
        cast = local.local_cast(cfg, models, searcher or search(), self.folder.ledger, self.folder.episodes)
        self.wrap(cast, jitter)

    def wrap(self, cast: Cast, jitter: int | None) -> None:
        def faulty(crew: Crew[Any]) -> FaultyCrew:
            return FaultyCrew(crew, jitter=jitter)

        self.cast = replace(
            cast,
            players={role: faulty(crew) for role, crew in cast.players.items()},
            judges=faulty(cast.judges),
            learners={name: faulty(crew) for name, crew in cast.learners.items()},
            ledger=faulty(cast.ledger),
        )

    def items(self) -> list[TargetRow]:
        """Targets, or the world's questions with another right answer before theirs, which nobody gives."""
        if self.cfg.asks:
            return [TargetRow(target) for target in world().targets()]
        return [TargetRow("else", q.text, ("else", q.answer)) for q in world().questions(1, 40, 7)]

    def targets(self) -> Targets:
        block = self.cfg.asking if self.cfg.asks else self.cfg.answering
        return Targets(self.items(), block.batch, self.cfg.seed, each=self.cfg.game.proposals)

    def game(self) -> SelfPlay:
        questions = [Question(f"q{i}", q.text, [q.answer], q.hops) for i, q in enumerate(world().questions(1, 8, 3))]
        sets = [QuestionSet("one", questions, "train"), QuestionSet("dark", questions, "none")]
        report = Report(self.sink, world(), 6, self.cfg.spec, self.sink.earlier)
        return SelfPlay(self.cfg, self.cast, self.folder, self.targets(), report, Evaluator(self.cfg, sets))

    def play(self) -> SelfPlay:
        game = self.game()
        asyncio.run(asyncio.wait_for(game.run(), 60))
        return game

    def played(self) -> Self:
        """The same, once it has played."""
        self.play()
        return self

    def whole(self) -> Self:
        """The same, once it has played and the laws hold."""
        self.play()
        self.settled()
        return self

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder.ledger, readonly=True)

    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.folder.state.read_text()))

    def figures(self, role: str = "game") -> list[dict[str, float]]:
        return [values for _, name, values in self.sink.rows if name == role]

    def rows(self, sql: str = "SELECT * FROM episodes ORDER BY id") -> list[dict[str, Any]]:
        return [dict(row) for row in self.ledger._db.execute(sql)]

    def settled(self) -> dict[str, dict[str, int]]:
        """Assert laws 2 and 3 over the finished run's ledger and files; role → state → episodes."""
        states = self.ledger.check()
        for role, counts in states.items():
            assert {state for state, n in counts.items() if n} <= FINAL, role
        for row in self.rows():
            if row["state"] == "voided":
                assert row["reward"] is None and row["cause"], row
            if row["state"] == "trained":
                assert row["commit_step"] and row["outcome"] in ("scored", "rejected")
        state = self.state()
        assert set(state["folders"]) == set(state["versions"]) == set(self.cfg.roles)
        for name, roles in learners(self.cfg).items():
            (folder,) = {state["folders"][role] for role in roles}
            saved = json.loads((self.folder.path / folder / "ssp.json").read_text())
            assert (saved["version"], saved["role"]) == (state["versions"][name], name)
            assert saved["run_step"] <= state["step"]  # less when it has published nothing since
        return states


def scripted(patch: pytest.MonkeyPatch) -> None:
    """Put the scripted engine, the world's tokenizer and the fake learner where the workers look for theirs."""
    FakeLearner.reset()
    patch.setattr(build, "engine", lambda *args: ScriptedEngine(script))
    patch.setattr(build, "tokenizer", lambda folder: tokens())
    patch.setattr(local, "Learner", FakeLearner)


class BrokenSearch:
    """Real search whose calls fail when `down(queries)`."""

    def __init__(self, down: Callable[[list[str]], bool], cause: str = "retriever_down") -> None:
        self._inner, self._down, self._cause = search(), down, cause

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        if self._down(queries):
            raise Fault(self._cause)
        return self._inner.search(queries, k, corpus)


# records


def brief(id: str, role: str = SOLVER, **changes: Any) -> Brief:
    made = Brief(id, "g", role, 0, "x", None, "", "final", 1, 5, 10, 1, 1, "f", 0, block=Block("b", None))
    lookups = changes.get("searches", made.searches)
    return replace(made, turn_tokens=(2, 3), **{"lookups": lookups, **changes})


def void(id: str, role: str = SOLVER, cause: str = "retriever_down") -> Brief:
    return brief(id, role, outcome=Outcome.VOID, cause=cause, stopped="fault", final=None)


def game(id: str, right: list[bool | None] | None = None, **changes: Any) -> Game:
    """A valid game with its proposal; `right` per attempt (None: void), which makes it a chosen one."""
    made = Game(id, int(id[1:]), "t", proposal=brief(f"p{id}", PROPOSER), question=f"q{id} seat ?", valid=True)
    for i, verdict in enumerate(right or []):
        name = f"s{id}a{i}"
        made.attempts.append(void(name) if verdict is None else brief(name))
        if verdict is not None:
            made.grades[name] = Grade(verdict, float(verdict))
    made.chosen, made.tried_by = right is not None, 3
    for key, value in changes.items():
        setattr(made, key, value)
    return made


def tasks(n: int, role: str = SOLVER, prefix: str = "t") -> list[Task]:
    field = {"question": "a seat ?"} if role == SOLVER else {"target": "a"}
    return [Task(f"{prefix}{i}", f"g{i}", role, 0, 100 + i, field) for i in range(n)]
