"""One learner step as the coordinator sees it: staleness check, update, publication, commit.

Owns the hard staleness check and the ledger commit of a step. Promises that a batch older than its bound is dropped,
not trained, and that `trained` is written only after the update returned. Refuses to know the algorithm.
"""

from __future__ import annotations

from typing import Any

from ssp.config.schema import Config
from ssp.episode import SOLVER, State
from ssp.selfplay.cast import Cast
from ssp.selfplay.lost import call_learner
from ssp.selfplay.records import PlanItem, TrainBatch, TrainItem
from ssp.selfplay.versions import ANCHORS, Published, WeightStore


class Schooling:
    """Steps of the learners."""

    def __init__(self, cfg: Config, cast: Cast, store: WeightStore) -> None:
        self._cfg, self._cast, self._store = cfg, cast, store
        self.incarnation = 0

    async def start(self, role: str, step: int) -> None:
        """Publish what the learner has, after a start at `step` or a return to it; first, choose how weights travel."""
        await self._store.courier.prepare(role)
        weights, figures = await call_learner(self._cast, role, "weights")
        await self._store.publish(role, weights, self.incarnation, step, int(figures["serial"]))

    async def anchor(self, step: int) -> Published:
        """The policy that the solver is held to after `step`, with a version that no policy has: for an evaluation."""
        weights, _ = await call_learner(self._cast, SOLVER, "anchor_weights")
        number = await self._cast.ledger.call(0, "next_version", "anchor", self.incarnation, step)
        return Published(ANCHORS + number, weights, -1)

    async def learn(self, batch: TrainBatch) -> dict[str, float]:
        """Train one batch and publish; figures of the step. A role that does not learn now keeps its episodes."""
        role, version = batch.role, self._store.latest(batch.role).version
        written = [item for item in batch.items if item.version_min >= 0]
        silent = [item for item in batch.items if item.version_min < 0]  # no model token, so no version and no gradient
        ages = [version - item.version_min for item in written]
        stats = {
            "reward/mean": sum(batch.rewards) / len(batch.rewards) if batch.rewards else 0.0,
            "staleness/mean": sum(ages) / len(ages) if ages else 0.0,
            "staleness/max": float(max(ages, default=0)),
            "episodes": float(len(batch.items)),
        }
        bound = getattr(self._cfg.schedule.max_staleness, role)
        fresh = [item for item, age in zip(written, ages, strict=True) if age <= bound]
        stale = [item for item, age in zip(written, ages, strict=True) if age > bound]
        for items, cause in ((stale, "stale"), (silent, "no_signal")):
            if items:
                await self._mark(items, State.DROPPED, cause)
        if not self._learns(role, batch.step):
            await self._mark(fresh, State.KEPT, "")
        elif fresh:
            stats.update(await self._update(role, batch.step, fresh))
        stats["version"] = float(self._store.latest(role).version)
        return stats

    async def _update(self, role: str, step: int, items: list[TrainItem]) -> dict[str, float]:
        blocks = {item.block.id: item.block.ref for item in items}
        places = {id_: place for place, id_ in enumerate(blocks)}
        plan = [PlanItem(places[i.block.id], i.index, i.reward, i.group, i.baseline) for i in items]
        weights, stats = await call_learner(self._cast, role, "update", plan, *blocks.values())
        serial = int(stats.pop("serial"))
        published = await self._store.publish(role, weights, self.incarnation, step, serial)
        ids = [item.id for item in items]
        await self._cast.ledger.call(0, "commit", role, self.incarnation, step, published.version, ids)
        return {**stats, **self._store.courier.figures(role)}

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
