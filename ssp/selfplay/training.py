"""One learner step as the coordinator sees it: staleness, update, publication, commit.

Promises that nothing older than its bound is trained, that `trained` is written only after the
update returned, and that roles which share a policy get one update and one publication a round.
Refuses to know the algorithm."""

from collections.abc import Mapping

from ssp.base.episode import State
from ssp.base.played import Ref
from ssp.base.values import Values
from ssp.config.crews import bound, learners, learns
from ssp.config.schema import Config
from ssp.learning.scored import Scored
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.records import Published, TrainBatch
from ssp.selfplay.versions import ANCHORS, WeightStore


class Trainer:
    """Takes the steps of the learners."""

    def __init__(self, cfg: Config, cast: Cast, store: WeightStore) -> None:
        self._cfg = cfg
        self._cast = cast
        self._store = store
        self._learner = {role: name for name, roles in learners(cfg).items() for role in roles}
        self.incarnation = 0

    async def start(self, learner: str, step: int) -> None:
        """Publish the learner's weights after a start at `step`, or a return to it."""
        weights, figures = await self._cast.learner(learner).weights()
        await self._store.publish(learner, weights, self.incarnation, step, int(figures["serial"]))

    async def anchor(self, step: int) -> Published:
        """The reference policy of the answering role after `step`, with a version that no policy
        has."""
        answerer = self._cfg.spec.answerer
        weights, _ = await self._cast.learner(answerer).anchor_weights()
        number = await self._cast.ledger.first.next_version("anchor", self.incarnation, step)
        return Published(ANCHORS + number, weights, -1)

    async def learn(self, *batches: TrainBatch) -> dict[str, Values]:
        """Train a round's batches of one learner and publish; figures by role. The episodes of a
        role that does not learn now end kept."""
        stats: dict[str, Values] = {}
        samples: dict[str, list[Scored]] = {}
        blocks: dict[str, Ref] = {}
        for batch in batches:
            fresh, figures = await self._fresh(batch)
            stats[batch.role] = {**batch.figures, **figures}
            if not learns(self._cfg, batch.role, batch.step):
                await self._mark(fresh, State.KEPT, "")
            elif fresh:
                samples[batch.role] = fresh
                blocks |= {sample.block: batch.blocks[sample.block] for sample in fresh}
        if samples:
            updated = await self._update(batches[0].step, samples, blocks)
            for role, figures in updated.items():
                stats[role] |= figures
        for role, figures in stats.items():
            figures["version"] = float(self._store.latest(role).version)
        return stats

    async def _fresh(self, batch: TrainBatch) -> tuple[list[Scored], Values]:
        """Drop the stale samples of a batch; the others, and figures of the whole batch."""
        version = self._store.latest(batch.role).version
        oldest = version - bound(self._cfg, batch.role)
        fresh = [sample for sample in batch.samples if sample.version_min >= oldest]
        stale = [sample for sample in batch.samples if sample.version_min < oldest]
        await self._mark(stale, State.DROPPED, "stale")
        ages = [version - sample.version_min for sample in batch.samples]
        figures = {
            "staleness/mean": sum(ages) / len(ages) if ages else 0.0,
            "staleness/max": float(max(ages, default=0)),
            "episodes": float(len(ages)),
        }
        return fresh, figures

    async def _update(
        self, step: int, samples: Mapping[str, list[Scored]], blocks: Mapping[str, Ref]
    ) -> dict[str, Values]:
        """Update a learner once on `samples` by role, which lie in these blocks; figures by
        role."""
        name = self._learner[next(iter(samples))]
        learner = self._cast.learner(name)
        weights, stats = await learner.update(samples, list(blocks), *blocks.values())
        (serial,) = {int(figures.pop("serial")) for figures in stats.values()}
        await self._store.publish(name, weights, self.incarnation, step, serial)
        for role, mine in samples.items():
            version = self._store.latest(role).version
            ids = [sample.id for sample in mine]
            await self._cast.ledger.first.commit(role, self.incarnation, step, version, ids)
        return {role: {**figures, **self._store.figures(role)} for role, figures in stats.items()}

    async def _mark(self, samples: list[Scored], state: State, cause: str) -> None:
        """Let samples end in a final state."""
        if samples:
            rows = [{"id": sample.id} for sample in samples]
            end = {"state": state.value, "cause": cause}
            await self._cast.ledger.first.advance(rows, end)
