"""Frozen past versions of one role."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ssp.base.errors import InvariantError

SURE = 1.645
"""Standard errors by which a gain must pass its margin: 95 %, one-sided."""


class Pool:
    """Members are versions, ascending. `every`: versions between two admissions; `margin`: Elo above the newest member that
    admits at once (0: never); `size`: of the pool, at least 3."""

    def __init__(self, every: int, margin: float, size: int) -> None:
        self._every, self._margin, self._size = every, margin, size
        self.members: list[int] = []

    def admits(self, version: int, gain: Callable[[int], tuple[float, float]]) -> bool:
        """Whether `version`, later than every member, becomes one. `gain(member)`: Elo above it, and its standard error."""
        if not self.members:
            return True
        newest = self.members[-1]
        if version <= newest:
            return False
        if version - newest >= self._every:
            return True
        if not self._margin:
            return False
        more, error = gain(newest)
        return more - SURE * error >= self._margin

    def admit(self, version: int, strength: Callable[[int], float], playing: Collection[int] = ()) -> list[int]:
        """Take `version` in; the members that left for it, never one of `playing`."""
        if self.members and version <= self.members[-1]:
            raise InvariantError(f"version {version} comes after {self.members[-1]}, the pool's newest")
        self.members.append(version)
        return self.trim(strength, playing)

    def trim(self, strength: Callable[[int], float], playing: Collection[int] = ()) -> list[int]:
        """Let members leave until there are `size`; those that left."""
        left: list[int] = []
        while len(self.members) > self._size:
            stay = {self.members[0], self.members[-1], max(self.members, key=strength), *playing}
            inner = zip(self.members, self.members[1:], self.members[2:], strict=False)
            gaps = {member: after - before for before, member, after in inner if member not in stay}
            if not gaps:
                break
            left.append(min(gaps, key=lambda member: gaps[member]))
            self.members.remove(left[-1])
        return left
