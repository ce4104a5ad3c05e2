"""Crews whose calls are seen: every call that computes passes here, with the name of its work."""

import time
from dataclasses import replace
from typing import Any, TypeVar

from ssp.base.crew import Around, Crew, CrewCall
from ssp.base.episode import Task
from ssp.base.values import Values
from ssp.config.crews import at_once
from ssp.config.schema import Config
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.records import PlayOrder
from ssp.telemetry.activity import STEP, Activity

W = TypeVar("W")


class Watched(Around[W]):
    """A crew whose calls `activity` sees. `at_once`: how many calls an actor answers at once."""

    def __init__(self, inner: Crew[W], activity: Activity, at_once: int = 1) -> None:
        super().__init__(inner)
        self._activity, self._at_once = activity, at_once
        activity.enrol(self.name.replace("-", "_"), [f"{self.name}-{i}" for i in range(self.size)])

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        """See `Crew.perform`."""
        actor = f"{self.name}-{worker}"
        if call.beside:
            started = time.perf_counter()
            answer = await self.inner.perform(worker, call, *args)
            self._activity.beside(actor, "sync", started, _step() | {"version": args[0]})
            return answer
        if not call.work:
            return await self.inner.perform(worker, call, *args)
        work, shown = call.work, _step()
        plays = len(args) > 1 and isinstance(args[1], PlayOrder)
        if plays:
            tasks = args[0]
            work = _work(tasks[0]) if tasks else "solve"
            shown |= {"episodes": len(tasks), "version": args[2]}
        with self._activity.call(actor, work, shown, self._at_once) as more:
            answer = await self.inner.perform(worker, call, *args)
            if plays:
                seconds = answer[1].seconds
                for part in ("generate", "search"):  # which a service does while the player waits
                    if part in seconds:
                        more[f"{part}_s"] = round(seconds[part], 6)
                synced = seconds.get("sync_transfer", 0.0) + seconds.get("sync_load", 0.0)
                more["sync_s"] = round(synced, 6)
            return answer


def watched(cast: Cast, activity: Activity, cfg: Config) -> Cast:
    """The cast with every crew that computes watched. The ledger is not: it answers at once."""
    seen = {id(crew): Watched(crew, activity) for crew in cast.learners.values()}
    learners, players = dict(cast.learners), dict(cast.players)
    for role, learner in cast.learners.items():
        learners[role] = seen[id(learner)]
    for role, player in cast.players.items():
        players[role] = Watched(player, activity, at_once(cfg, role))
    judges = Watched(cast.judges, activity)
    return replace(cast, players=players, judges=judges, learners=learners)


def _work(task: Task) -> str:
    """What a block of tasks is shown as."""
    if task.item:  # only evaluations name the question that they ask
        return "evaluate"
    return "solve" if "question" in task.fields else "propose"


def _step() -> Values:
    step = STEP.get(-1)
    return {"step": step} if step >= 0 else {}
