"""Injected outages of retriever, verifier and judge, and SSP's way with them: for experiments, and wrong on purpose.

Owns the time in which services fail, the services that fail in it, and `ssp` semantics: a failed search is text that the
policy reads, a failed verification makes the question invalid, a failed verdict is "wrong" (reference ssp.md, 4.2, 1.6 and
5). Nothing of that may ever be in the package: there, a fault is void. Promises that the same settings fail the same
requests, and that the yardstick (held-out questions, exact match) never meets an outage.

A service in its outage fails each request with probability `FAILS`. Time counts in rounds of the game: a round lasts one, a
probe of the closed gate `PROBE` (10 s against about 1.5 s a round). So who waits, waits as long as it would.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aliases import AliasWorld

from ssp.base.crew import Around, Crew, CrewCall, LocalCrew
from ssp.base.episode import Document, Episode, Grade, Outcome, Verdict
from ssp.base.errors import Fault
from ssp.base.seeds import generator
from ssp.config.schema import Config
from ssp.game.corpora import TRAIN
from ssp.game.judge import Item
from ssp.game.judge.judges import PROBE as HEALTH
from ssp.game.rollout import Search
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Players
from ssp.selfplay.workers.judge import Judge
from tests.fakejudge import Reply, serving

SCHEDULE = {"retriever": (6, 14), "verifier": (18, 26), "judge": (30, 38)}
"""Service → the rounds [from, to) of its outage, the first round being 1."""
FAILS = 0.5
PROBE = 6
ERROR = Document("error", '"error"\nSearch request failed or timed out after retries.')
"""What SSP's policy reads in place of documents."""


@dataclass
class Outages:
    """The clock of the outages, and what they did to rewards. `ssp`: with SSP's semantics; else as the package does."""

    seed: int
    ssp: bool
    services: Sequence[str] = tuple(SCHEDULE)
    now: int = 0
    step: int = 0
    truths: dict[str, bool] = field(default_factory=dict)
    """Attempt → whether its answer was right, whatever the judge said."""
    touched: set[str] = field(default_factory=set)
    """Episodes that read an error in place of documents, and proposals that were rejected for a fault."""

    def at(self, step: int) -> None:
        """The round of `step` is being played."""
        self.now += max(0, step - self.step)
        self.step = max(self.step, step)

    def fails(self, service: str, *request: object) -> bool:
        """Whether this request of `service` fails now."""
        begin, end = SCHEDULE[service]
        if service not in self.services or not begin <= self.now < end:
            return False
        return bool(generator(self.seed, "outage", service, self.now, *request).random() < FAILS)


@contextmanager
def judge(outages: Outages, world: AliasWorld) -> Iterator[str]:
    """A judge over HTTP that knows all names of the world's entities; its address. Health checks are always answered."""

    def answer(item: Mapping[str, Any], number: int) -> Reply | str:
        if item["question"] != HEALTH.question and outages.fails("judge", item["question"], item["answer"]):
            return Reply("out of order", status=503)
        return "Correct" if item["answer"] in world.names(item["accepted"][0]) else "Wrong"

    with serving(answer) as server:
        server.bodies = _Forgotten()
        yield server.url


class _Forgotten(list[dict[str, Any]]):
    """A run asks more than is worth keeping."""

    def append(self, body: dict[str, Any]) -> None:
        self[:] = [body]


class FailingSearch:
    """A search whose training corpus fails. A request of ours is a batch of queries; SSP's is one query."""

    def __init__(self, search: Search, outages: Outages) -> None:
        self._search, self._outages = search, outages

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """Documents, a Fault, or in place of some documents what SSP says."""
        if corpus != TRAIN:
            return self._search.search(queries, k, corpus)
        if not self._outages.ssp and self._outages.fails("retriever", *queries):
            raise Fault("retriever_down", "an injected outage")
        found = list(self._search.search(queries, k, corpus))
        if self._outages.ssp:
            failed = [self._outages.fails("retriever", query) for query in queries]
            found = [[ERROR] if lost else documents for lost, documents in zip(failed, found, strict=True)]
        return found


class FailingVerifier:
    """The referee's verifier, of which some answers are faults."""

    def __init__(self, verifier: Any, outages: Outages) -> None:
        self._verifier, self._outages = verifier, outages
        self.form, self.role, self.write = verifier.form, verifier.role, verifier.write

    def answers(self, prompts: Sequence[Any], seeds: Sequence[int]) -> list[str | Fault]:
        """What the verifier wrote to each prompt, or the fault."""
        said = self._verifier.answers(prompts, seeds)
        return [
            Fault("engine_down", "an injected outage") if self._outages.fails("verifier", seed) else text
            for seed, text in zip(seeds, said, strict=True)
        ]


class FailingJudge(Judge):
    """The judge's worker with a verifier that fails; with SSP's semantics no fault of any of them is ever told."""

    def __init__(self, cfg: Config, model_dir: Path, outages: Outages, world: AliasWorld) -> None:
        cfg.judge.retries = 0  # a try that fails is an outage
        cfg.judge.timeout = 600.0  # and a busy machine is none
        super().__init__(cfg, model_dir)
        self._outages, self._world = outages, world
        assert self._referee is not None
        self._referee._verifier = FailingVerifier(self._referee._verifier, outages)

    def verify(self, block: list[Episode], asked: list[tuple[str, int]], *live: Any) -> tuple[list[Verdict], float]:
        """SSP: a failure while verifying makes the question invalid."""
        verdicts, seconds = super().verify(block, asked, *live)
        self._touch(block)
        if self._outages.ssp:
            forced = [bool(verdict.void_cause) for verdict in verdicts]
            self._outages.touched |= {episode.id for episode, lost in zip(block, forced, strict=True) if lost}
            verdicts = [
                Verdict(False, rule="not_answerable") if lost else verdict
                for lost, verdict in zip(forced, verdicts, strict=True)
            ]
        return verdicts, seconds

    def grade(self, block: list[Episode], items: Sequence[tuple[int, Item]]) -> tuple[list[Grade], float]:
        """SSP: a failure of the judge means that the answer is wrong."""
        grades, seconds = super().grade(block, items)
        self._touch(block)
        for row, item in items:
            self._outages.truths[block[row].id] = (block[row].final or "") in self._world.names(item.golds[0])
        if self._outages.ssp:
            grades = [Grade(False, 0.0) if grade.void_cause else grade for grade in grades]
        return grades, seconds

    def answers(self) -> bool:
        """A probe: its time goes by."""
        self._outages.now += PROBE
        return super().answers()

    def _touch(self, block: Sequence[Episode]) -> None:
        self._outages.touched |= {episode.id for episode in block if ERROR in episode.documents}


class _Rounds(Around[Players]):
    """The proposers' crew, by whose calls the clock goes."""

    def __init__(self, crew: Crew[Players], outages: Outages) -> None:
        super().__init__(crew)
        self._outages = outages

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        if call.name == "play":
            self._outages.at(args[1].step)
        return await self.inner.perform(worker, call, *args)


def inject(cast: Cast, cfg: Config, model_dir: Path, outages: Outages, world: AliasWorld) -> Cast:
    """`cast` with the failing judge, and a clock at its proposers."""
    judges = LocalCrew(Judges, "judge", lambda i: FailingJudge(cfg, model_dir, outages, world), cfg.placement.judges)
    players = {**cast.players, "proposer": _Rounds(cast.players["proposer"], outages)}
    return replace(cast, judges=judges, players=players)


def damage(ledger: Path, outages: Outages) -> dict[str, float]:
    """Shares of rewards that are not those which truth would have given, and of voids, by role.

    An attempt's is corrupted when the judge's word was not the truth, or it read an error in place of documents. A
    proposal's, when it was rejected for a fault, read an error itself, or is not 1 - the share of truly right answers among
    all attempts that were played to their end, or one of these read an error.
    """
    database = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    try:
        rows = database.execute(
            "SELECT id, game_id, role, outcome, reward FROM episodes WHERE role != 'eval'"
        ).fetchall()
        verdicts = dict(database.execute("SELECT id, verdict FROM games").fetchall())
    finally:
        database.close()
    attempts: dict[str, list[str]] = {}
    for id_, game, role, _, _ in rows:
        if role == "solver" and id_ in outages.truths:
            attempts.setdefault(game, []).append(id_)
    wrong: dict[str, list[float]] = {"proposer": [], "solver": []}
    errors: list[float] = []
    for id_, game, role, _, reward in rows:
        if reward is None:
            continue
        bad = id_ in outages.touched
        if role == "solver":
            bad |= bool(reward) != outages.truths[id_]
        elif verdicts[game] == "valid" and game in attempts:
            truth = 1.0 - sum(outages.truths[a] for a in attempts[game]) / len(attempts[game])
            errors.append(reward - truth)
            bad |= abs(reward - truth) > 1e-6 or any(a in outages.touched for a in attempts[game])
        wrong[role].append(float(bad))
    found = {f"corrupted_{role}": sum(bad) / max(1, len(bad)) for role, bad in wrong.items()}
    found |= {f"paid_{role}": float(len(bad)) for role, bad in wrong.items()}
    for role in wrong:
        mine = [outcome == Outcome.VOID.value for _, _, whose, outcome, _ in rows if whose == role]
        found[f"void_{role}"] = sum(mine) / max(1, len(mine))
    return found | {"proposer_overpaid": sum(errors) / max(1, len(errors))}


def write(folder: Path, ledger: Path, outages: Outages) -> None:
    """`faults.json` of a run's folder."""
    (folder / "faults.json").write_text(json.dumps(damage(ledger, outages)))
