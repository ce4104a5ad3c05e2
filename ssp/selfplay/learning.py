"""One learner step as the coordinator sees it: staleness check, update, publication, commit.

Owns the hard staleness check and the ledger commit of a step. Promises that a batch older than its bound is dropped,
not trained, that `trained` is written only after the update returned, and that roles which share a policy get one update
and one publication a round, also when one of them has nothing to learn from. Refuses to know the algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ssp.config.schema import Config
from ssp.episode import SOLVER, State
from ssp.selfplay.cast import Cast, learners
from ssp.selfplay.lost import call_learner
from ssp.selfplay.records import PlanItem, TrainBatch, TrainItem
from ssp.selfplay.redo import Redo
from ssp.selfplay.versions import ANCHORS, Published, WeightStore


class Schooling:
    """Steps of the learners."""

    def __init__(self, cfg: Config, cast: Cast, store: WeightStore, redo: Redo) -> None:
        self._cfg, self._cast, self._store, self._redo = cfg, cast, store, redo
        self._learner = {role: name for name, roles in learners(cfg).items() for role in roles}
        self.incarnation = 0

    async def start(self, learner: str, step: int) -> None:
        """Publish what the learner has, after a start at `step` or a return to it; first, choose how weights travel."""
        await self._store.courier.prepare(learner)
        weights, figures = await call_learner(self._cast, learner, "weights")
        await self._store.publish(learner, weights, self.incarnation, step, int(figures["serial"]))

    async def anchor(self, step: int) -> Published:
        """The policy that the solver is held to after `step`, with a version that no policy has: for an evaluation."""
        weights, _ = await call_learner(self._cast, SOLVER, "anchor_weights")
        number = await self._cast.ledger.call(0, "next_version", "anchor", self.incarnation, step)
        return Published(ANCHORS + number, weights, -1)

    async def learn(self, *batches: TrainBatch) -> dict[str, dict[str, float]]:
        """Train a round's batches of the roles of one learner and publish; the step's figures, by role. A role that does
        not learn now keeps its episodes."""
        stats: dict[str, dict[str, float]] = {}
        items: dict[str, list[TrainItem]] = {}
        for batch in batches:
            fresh, stats[batch.role] = await self._fresh(batch)
            if not self._learns(batch.role, batch.step):
                await self._mark(fresh, State.KEPT, "")
            elif fresh:
                items[batch.role] = fresh
        if items:
            nbytes = sum(batch.nbytes for batch in batches)
            for role, found in (await self._update(batches[0].step, items, nbytes)).items():
                stats[role].update(found)
        for role, found in stats.items():
            found["version"] = float(self._store.latest(role).version)
        return stats

    async def _fresh(self, batch: TrainBatch) -> tuple[list[TrainItem], dict[str, float]]:
        """What of a batch may be trained, the rest is dropped; and what the batch is like."""
        version = self._store.latest(batch.role).version
        written = [item for item in batch.items if item.version_min >= 0]
        silent = [item for item in batch.items if item.version_min < 0]  # no model token, so no version and no gradient
        ages = [version - item.version_min for item in written]
        bound = getattr(self._cfg.schedule.max_staleness, batch.role)
        stale = [item for item, age in zip(written, ages, strict=True) if age > bound]
        for items, cause in ((stale, "stale"), (silent, "no_signal")):
            if items:
                await self._mark(items, State.DROPPED, cause)
        return [item for item, age in zip(written, ages, strict=True) if age <= bound], {
            "reward/mean": sum(batch.rewards) / len(batch.rewards) if batch.rewards else 0.0,
            "staleness/mean": sum(ages) / len(ages) if ages else 0.0,
            "staleness/max": float(max(ages, default=0)),
            "episodes": float(len(batch.items)),
        }

    async def _update(
        self, step: int, items: Mapping[str, list[TrainItem]], nbytes: int
    ) -> dict[str, dict[str, float]]:
        """One update on `items`, by role, whose payloads have so many bytes; figures of each role in it."""
        blocks = {item.block.id: item.block.ref for mine in items.values() for item in mine}
        places = {id_: place for place, id_ in enumerate(blocks)}
        plans = {
            role: [PlanItem(places[i.block.id], i.index, i.reward, i.group, i.baseline) for i in mine]
            for role, mine in items.items()
        }
        learner, refs = self._learner[next(iter(items))], list(blocks.values())

        async def work() -> dict[str, dict[str, float]]:
            weights, stats, serial = await self._redo.update(learner, plans, refs)
            await self._store.publish(learner, weights, self.incarnation, step, serial)
            return stats

        stats = await self._redo.surely(learner, work)
        self._redo.learned(learner, plans, refs, nbytes)
        for role, mine in items.items():
            version, ids = self._store.latest(role).version, [item.id for item in mine]
            await self._cast.ledger.call(0, "commit", role, self.incarnation, step, version, ids)
        return {role: {**found, **self._store.courier.figures(role)} for role, found in stats.items()}

    async def _mark(self, items: list[TrainItem], state: State, cause: str) -> None:
        rows: list[dict[str, Any]] = [{"id": item.id, "state": state.value} for item in items]
        for row in rows:
            if cause:
                row["cause"] = cause
        await self._cast.ledger.call(0, "advance", rows)

    def _learns(self, role: str, step: int) -> bool:
        """False for a frozen role, after its last step, and while the other role warms up alone (SSP's warm-up)."""
        mine = self._cfg.block(role)
        alone = max((self._cfg.block(other).warmup_steps for other in self._cfg.roles if other != role), default=0)
        return mine.policy != "frozen" and step > alone and not 0 < mine.freeze_after < step
