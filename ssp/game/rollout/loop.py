"""Who takes a turn when: in lock step, or each episode as fast as its engine and searches let it.
Training, evaluation and `ask` all use it (law 8). With a lock-step engine the batch of every step
is fixed by the tasks alone (law 7)."""

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from ssp.base.episode import Episode, Task
from ssp.base.errors import Fault
from ssp.engines.base import Engine, FreeEngine, Generation, Sampling
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import agents
from ssp.game.rollout.table import Found, Seat, Settings, Table
from ssp.search.hits import Search

_SEARCHES = 64
"""Searches of free-running episodes that are under way at once, at most."""


def rollout(
    engine: Engine | FreeEngine,
    renderer: Renderer,
    search: Search,
    tasks: Sequence[Task],
    settings: Settings,
) -> tuple[list[Episode], dict[str, float]]:
    """Play all `tasks` (of one role) to the end; episodes in their order, and seconds by part
    (`generate`, `search`, `search/<stage>`). Ends of an episode (`stopped`): `final` (it handed
    in),
    `turns` (it asked for one more search than it has), `tokens` (a turn or the whole is too long),
    `malformed` (one invalid turn too many), `fault` (void: a Fault of search hits the episodes of
    that call, one of the engine all that it hit). `Episode.documents` are those that the policy was
    shown."""
    if settings.agent is not None and tasks:
        assert isinstance(engine, FreeEngine)  # `Config` makes it one
        return agents.play(engine, renderer, search, tasks, settings, settings.agent)
    if not tasks:
        return [], {"generate": 0.0, "search": 0.0}
    table = Table(engine, renderer, search, tasks, settings)
    try:
        if isinstance(engine, FreeEngine):
            _free(engine, table)
        else:  # in step: all that go on take one turn; then their searches go out together
            while going := [seat for seat in table.seats if table.may_go_on(seat)]:
                _generate(engine, table, going)
                if asking := [seat for seat in going if seat.asked]:
                    table.show(asking, table.find(asking))
    finally:
        table.close()
    return table.episodes(), table.seconds


def _generate(engine: Engine, table: Table, seats: list[Seat]) -> None:
    """One turn of every seat, in one step for all that are sampled alike."""
    groups: dict[Sampling, list[Seat]] = {}
    for seat in seats:  # before any of them is read, which may change how its next turn is sampled
        groups.setdefault(table.sampling(seat), []).append(seat)
    for sampling, alike in groups.items():
        began = time.perf_counter()
        try:
            turns = engine.step(
                [seat.slot for seat in alike], [seat.pending for seat in alike], sampling
            )
        except Fault as fault:
            for seat in alike:
                seat.episode.void(fault)
            continue
        finally:
            table.seconds["generate"] += time.perf_counter() - began
        for seat, turn in zip(alike, turns, strict=True):
            table.read(seat, turn)


def _free(engine: FreeEngine, table: Table) -> None:
    """Every episode on its own: its next turn is asked for as soon as what it waits for is
    there."""
    flying: dict[Future[Any], Seat] = {}
    began = time.perf_counter()

    def go(seat: Seat) -> None:
        if table.may_go_on(seat):
            flying[engine.submit(seat.slot, seat.pending, table.sampling(seat))] = seat

    with ThreadPoolExecutor(min(_SEARCHES, len(table.seats))) as pool:
        for seat in table.seats:
            go(seat)
        while flying:
            done, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in done:
                seat = flying.pop(future)
                result: Generation | Found
                try:
                    result = future.result()
                except Fault as fault:
                    seat.episode.void(fault)
                    continue
                if isinstance(result, Generation):
                    table.read(seat, result)
                else:
                    table.show([seat], result)
                if seat.asked:
                    flying[pool.submit(table.find, [seat])] = seat
                else:
                    go(seat)
    table.seconds["generate"] = time.perf_counter() - began
