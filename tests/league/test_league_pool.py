"""Who is kept: admission by number and by strength, and who leaves a full pool."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp.base.errors import InvariantError
from ssp.selfplay.league.pool import Pool


def gain(more: float, error: float = 0.0) -> object:
    return lambda member: (more, error)


def test_every_so_many_versions_one_is_admitted() -> None:
    pool, taken = Pool(every=10, margin=0.0, size=5), []
    for version in range(3, 40):
        if pool.admits(version, gain(9999)):  # type: ignore[arg-type]
            taken.append(version)
            pool.admit(version, float)
    assert taken == pool.members == [3, 13, 23, 33]


@pytest.mark.parametrize(
    ("more", "error", "admitted"), [(150, 10, True), (90, 0, False), (150, 40, False), (-200, 1, False)]
)
def test_a_version_that_is_surely_stronger_is_admitted_at_once(more: float, error: float, admitted: bool) -> None:
    pool, asked = Pool(every=10, margin=100.0, size=5), []
    pool.admit(5, float)

    def stronger(member: int) -> tuple[float, float]:
        asked.append(member)
        return more, error

    assert pool.admits(6, stronger) is admitted
    assert asked == [5]
    assert not pool.admits(5, stronger) and not pool.admits(4, stronger)


def test_members_come_in_order() -> None:
    pool = Pool(1, 0.0, 5)
    pool.admit(5, float)
    with pytest.raises(InvariantError, match="after"):
        pool.admit(5, float)


def test_who_has_the_nearest_neighbours_leaves() -> None:
    pool = Pool(1, 0.0, 4)
    left = [pool.admit(version, lambda member: -member) for version in (0, 10, 20, 30, 32, 60)]
    assert left == [[], [], [], [], [30], [10]] and pool.members == [0, 20, 32, 60]


def test_the_best_and_those_being_played_stay() -> None:
    pool = Pool(1, 0.0, 3)
    for version in (0, 1, 2):
        pool.admit(version, float)
    assert pool.admit(3, lambda member: member == 1) == [2]  # 0 is the first, 1 the best, 3 the newest
    assert pool.admit(4, float, playing={1, 3}) == [] and len(pool.members) == 4  # above its size while they play
    assert pool.trim(float, playing={3}) == [1]
    assert pool.members == [0, 3, 4]


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=40),
    st.integers(3, 8),
    st.lists(st.floats(-5, 5), min_size=41, max_size=41),
    st.data(),
)
def test_whatever_happens_the_rules_hold(
    steps: list[int], size: int, strengths: list[float], data: st.DataObject
) -> None:
    pool, version, order = Pool(1, 0.0, size), 0, []
    for step in steps:
        version += step
        order.append(version)
        worth = {member: strengths[at] for at, member in enumerate(order)}
        playing = set(data.draw(st.lists(st.sampled_from(order), max_size=2))) & {*pool.members}
        before = {*pool.members, version}
        left = pool.admit(version, lambda member, worth=worth: worth[member], playing)  # type: ignore[misc]
        assert before == {*pool.members, *left} and not {*pool.members} & {*left}
        assert pool.members == sorted(pool.members) and len(pool.members) <= max(size, 3 + len(playing))
        assert {order[0], version, *playing} <= {*pool.members}
        assert max(worth[m] for m in before) == max(worth[m] for m in pool.members)
