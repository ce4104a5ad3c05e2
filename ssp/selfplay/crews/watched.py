"""Crews whose calls are seen: every call that computes passes here, with what its Protocol calls
it."""

import time
from dataclasses import replace
from typing import Any, TypeVar

from ssp.base.crew import Around, Crew, CrewCall
from ssp.base.episode import Task
from ssp.config.crews import at_once
from ssp.config.schema import Config
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.records import PlayOrder
from ssp.telemetry.activity import STEP, Activity

W = TypeVar("W")


class Watched(Around[W]):
    """A crew whose calls are seen by `activity`; otherwise the crew itself. `at_once`: calls that
    an actor makes at once."""

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
        order = args[1] if len(args) > 1 and isinstance(args[1], PlayOrder) else None
        shown = _step() | ({"episodes": len(args[0]), "version": args[2]} if order else {})
        work = call.work
        if order:  # only evaluations name the question that they ask
            work = _work(args[0][0]) if args[0] else "solve"
        with self._activity.call(actor, work, shown, self._at_once) as more:
            answer = await self.inner.perform(worker, call, *args)
            if order:  # searching is done elsewhere while the player waits
                seconds = answer[1].seconds
                parts = {
                    f"{part}_s": seconds[part] for part in ("generate", "search") if part in seconds
                }
                parts["sync_s"] = sum(
                    seconds.get(part, 0.0) for part in ("sync_transfer", "sync_load")
                )
                more |= {name: round(value, 6) for name, value in parts.items()}
            return answer


def watched(cast: Cast, activity: Activity, cfg: Config) -> Cast:
    """The cast with every crew that computes watched. The ledger is not: it answers at once."""
    learners = {id(crew): Watched(crew, activity) for crew in cast.learners.values()}
    return replace(
        cast,
        players={
            role: Watched(crew, activity, at_once(cfg, role)) for role, crew in cast.players.items()
        },
        judges=Watched(cast.judges, activity),
        learners={role: learners[id(crew)] for role, crew in cast.learners.items()},
    )


def _work(task: Task) -> str:
    """What a block of tasks is shown as."""
    if task.item:
        return "evaluate"
    return "solve" if "question" in task.fields else "propose"


def _step() -> dict[str, float]:
    return {"step": step} if (step := STEP.get(-1)) >= 0 else {}
