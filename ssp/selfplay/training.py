"""One learner step as the coordinator sees it: staleness, update, publication, commit. Refuses to know the algorithm.

Promises that nothing older than its bound is trained, that `trained`
is written only after the update returned, and that roles which share a policy get one update and one publication a round."""

from collections import Counter
from collections.abc import Mapping

from ssp.base.episode import SOLVER, State
from ssp.config import own
from ssp.config.crews import bound, learners
from ssp.config.schema import Config
from ssp.learning.warmup.taught import PlanItem
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.records import Published, TrainBatch, TrainItem
from ssp.selfplay.versions import ANCHORS, WeightStore


class Trainer:
    """Steps of the learners."""

    def __init__(self, cfg: Config, cast: Cast, store: WeightStore) -> None:
        self._cfg, self._cast, self._store = cfg, cast, store
        self._learner = {role: name for name, roles in learners(cfg).items() for role in roles}
        self.incarnation = 0

    async def start(self, learner: str, step: int) -> None:
        """Publish what the learner has, after a start at `step` or a return to it; first, choose how weights travel."""
        await self._store.prepare(learner)
        weights, figures = await self._cast.learner(learner).weights()
        await self._store.publish(learner, weights, self.incarnation, step, int(figures["serial"]))

    async def anchor(self, step: int) -> Published:
        """The policy that the solver is held to after `step`, with a version that no policy has."""
        weights, _ = await self._cast.learner(self._cfg.roles[-1]).anchor_weights()
        number = await self._cast.ledger.first.next_version("anchor", self.incarnation, step)
        return Published(ANCHORS + number, weights, -1)

    async def learn(self, *batches: TrainBatch) -> dict[str, dict[str, float]]:
        """Train a round's batches of one learner and publish; figures by role. Who does not learn now keeps its episodes."""
        stats: dict[str, dict[str, float]] = {}
        items: dict[str, list[TrainItem]] = {}
        for batch in batches:
            fresh, found = await self._fresh(batch)
            stats[batch.role] = {**batch.figures, **found}
            if learns(self._cfg, batch.role, batch.step):
                items[batch.role] = fresh
            else:
                await self._mark(fresh, State.KEPT, "")
        if items:
            for role, found in (await self._update(batches[0].step, items)).items():
                stats[role].update(found)
        for role, found in stats.items():
            found["version"] = float(self._store.latest(role).version)
        return stats

    def _oldest(self, role: str) -> int:
        return self._store.latest(role).version - bound(self._cfg, role)

    async def _fresh(self, batch: TrainBatch) -> tuple[list[TrainItem], dict[str, float]]:
        """What of a batch may be trained, the rest is dropped; and what the batch is like."""
        version, oldest = self._store.latest(batch.role).version, self._oldest(batch.role)
        fresh = [item for item in batch.items if item.version_min >= max(0, oldest)]
        stale = [item for item in batch.items if 0 <= item.version_min < oldest]
        silent = [item for item in batch.items if item.version_min < 0]  # no model token, so no version and no gradient
        await self._mark(stale, State.DROPPED, "stale")
        await self._mark(silent, State.DROPPED, "no_signal")
        ages = [version - item.version_min for item in (*fresh, *stale)]
        return fresh, {
            "staleness/mean": sum(ages) / len(ages) if ages else 0.0,
            "staleness/max": float(max(ages, default=0)),
            "episodes": float(len(batch.items)),
        }

    async def _update(self, step: int, items: Mapping[str, list[TrainItem]]) -> dict[str, dict[str, float]]:
        """One update on `items`, by role; figures of each role in it. Here a batch has its final form: who is left alone in
        a group that is compared, whatever thinned it, is dropped."""
        items = {role: left for role, mine in items.items() if (left := await self._compared(role, mine))}
        if not items:
            return {}
        blocks = {item.block.id: item.block.ref for mine in items.values() for item in mine}
        places = {id_: place for place, id_ in enumerate(blocks)}
        plans = {
            role: tuple(PlanItem(places[i.block.id], i.index, i.reward, i.group, i.baseline, i.turns) for i in mine)
            for role, mine in items.items()
        }
        learner = self._learner[next(iter(items))]
        weights, stats = await self._cast.learner(learner).update(plans, *blocks.values())
        (serial,) = {int(found.pop("serial")) for found in stats.values()}
        await self._store.publish(learner, weights, self.incarnation, step, serial)
        for role, mine in items.items():
            version, ids = self._store.latest(role).version, [item.id for item in mine]
            await self._cast.ledger.first.commit(role, self.incarnation, step, version, ids)
        return {role: {**found, **self._store.figures(role)} for role, found in stats.items()}

    async def _compared(self, role: str, items: list[TrainItem]) -> list[TrainItem]:
        """`items` without those that are alone in their group, where it is the baseline: the advantage of one would be its
        reward. A proposal to whose target no other one is asked for is a group of its own (SSP)."""
        several = role == SOLVER or self._cfg.game.proposals > 1
        if not several or not own.says(self._cfg.block(role).algorithm, "needs_group"):
            return items
        sizes = Counter(item.group for item in items)
        await self._mark([item for item in items if sizes[item.group] == 1], State.DROPPED, "no_signal")
        return [item for item in items if sizes[item.group] > 1]

    async def _mark(self, items: list[TrainItem], state: State, cause: str) -> None:
        if items:
            end = {"state": state.value, "cause": cause}
            await self._cast.ledger.first.advance([{"id": item.id} for item in items], end)


def learns(cfg: Config, role: str, step: int) -> bool:
    """False for a frozen role, after its last step, and while the other role warms up alone (SSP's warm-up)."""
    mine = cfg.block(role)
    alone = max((cfg.block(other).warmup_steps for other in cfg.roles if other != role), default=0)
    return mine.policy != "frozen" and step > alone and not 0 < mine.freeze_after < step
