"""Decides who takes a turn when: in lock step, or each episode as fast as its engine and searches
let it. Training, evaluation and `ask` all use it (law 8). With a lock-step engine the tasks alone
decide the batch of every step (law 7)."""

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from ssp.base.episode import Episode, Task
from ssp.base.errors import Fault
from ssp.base.values import Seconds
from ssp.engines.base import Engine, FreeEngine, Generation, Sampling
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import agents
from ssp.game.rollout.table import Found, Seat, Settings, Table
from ssp.search.hits import Search

_SEARCHES = 64
"""The most searches of free-running episodes that are under way at once."""


def rollout(
    engine: Engine | FreeEngine,
    renderer: Renderer,
    search: Search,
    tasks: Sequence[Task],
    settings: Settings,
) -> tuple[list[Episode], Seconds]:
    """Play all `tasks` (of one role) to the end. Returns the episodes, in order, and seconds by
    part (`generate`, `search`, `search/<stage>`).

    An episode has ended (`stopped`) by `final`: it handed in; `turns`: it asked for one more search
    than it has; `tokens`: a turn or the whole is too long; `malformed`: one invalid turn too many;
    or `fault`, which voids it: a Fault of a search hits the episodes of that call, one of the
    engine those of that step. `Episode.documents` are those that the policy was shown."""
    if not tasks:
        return [], {"generate": 0.0, "search": 0.0}
    if settings.agent is not None:
        assert isinstance(engine, FreeEngine)  # `Config` makes it one
        return agents.play(engine, renderer, search, tasks, settings, settings.agent)
    table = Table(engine, renderer, search, tasks, settings)
    try:
        if isinstance(engine, FreeEngine):
            _play_freely(engine, table)
        else:
            _play_in_step(engine, table)
    finally:
        table.close()
    return table.episodes(), table.seconds


def _play_in_step(engine: Engine, table: Table) -> None:
    """All that go on take a turn; then their searches go out together."""
    while going := [seat for seat in table.seats if table.may_go_on(seat)]:
        _generate(engine, table, going)
        asking = [seat for seat in going if seat.asked]
        if asking:
            table.show(asking, table.find(asking))


def _generate(engine: Engine, table: Table, seats: list[Seat]) -> None:
    """One turn of every seat; all that are sampled alike take it in one step."""
    groups: dict[Sampling, list[Seat]] = {}
    for seat in seats:  # before any of them is read, which may change how its next turn is sampled
        groups.setdefault(table.sampling(seat), []).append(seat)
    for sampling, alike in groups.items():
        slots = [seat.slot for seat in alike]
        pending = [seat.pending for seat in alike]
        began = time.perf_counter()
        try:
            turns = engine.step(slots, pending, sampling)
        except Fault as fault:
            for seat in alike:
                seat.episode.void(fault)
            continue
        finally:
            table.seconds["generate"] += time.perf_counter() - began
        for seat, turn in zip(alike, turns, strict=True):
            table.read(seat, turn)


def _play_freely(engine: FreeEngine, table: Table) -> None:
    """Every episode goes on as soon as the turn or the answers are there that it waits for."""
    flying: dict[Future[Any], Seat] = {}
    began = time.perf_counter()

    with ThreadPoolExecutor(min(_SEARCHES, len(table.seats))) as pool:

        def go_on(seat: Seat) -> None:
            if seat.asked:
                flying[pool.submit(table.find, [seat])] = seat
            elif table.may_go_on(seat):
                turn = engine.submit(seat.slot, seat.pending, table.sampling(seat))
                flying[turn] = seat

        for seat in table.seats:
            go_on(seat)
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
                go_on(seat)
    table.seconds["generate"] = time.perf_counter() - began
