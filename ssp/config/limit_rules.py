"""Which token limits of an episode may stand together, in every stage of a run.

Owns the rules about `{role}.limits`. Promises that no stage leaves an episode without room for its parts, and that a
limit which could not bind is refused. Refuses to read files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ssp.config.role import LimitsConfig
from ssp.config.schema import Config
from ssp.errors import InputError


def stages_follow_each_other(cfg: Config) -> None:
    """Limits change at later and later updates: those before the first stage are the block's own."""
    for role in ("proposer", "solver"):
        steps = [stage.step for stage in cfg.block(role).limits.stages]
        if any(stage.turn_tokens < 1 for stage in cfg.block(role).limits.stages):
            raise InputError(f"{role}.limits.stages: turn_tokens is at least 1", steps, "correct the stage")
        if steps != sorted(set(steps)) or any(step < 2 for step in steps):
            raise InputError(
                f"{role}.limits.stages come in the order of their steps, from update 2 on",
                f"steps {', '.join(map(str, steps))}",
                f"sort them; up to the first one {role}.limits.turn_tokens and total_tokens hold",
            )


def turn_fits_episode(cfg: Config) -> None:
    """One turn must fit into the episode."""
    for role in cfg.roles:
        for where, limits in _stages(cfg, role):
            if limits.turn_tokens >= limits.total_tokens:
                raise InputError(
                    f"{where}.turn_tokens is below {where}.total_tokens",
                    f"{limits.turn_tokens} against {limits.total_tokens}",
                    "raise total_tokens",
                )


def episode_fits_its_parts(cfg: Config) -> None:
    """The longest episode that the other limits allow must fit, or the question would run out of context (Search-R1)."""
    for role in ("proposer", "solver"):
        for where, limits in _stages(cfg, role):
            needed = limits.prompt_tokens + limits.turn_tokens * (limits.searches + 1)
            needed += limits.observation_tokens * limits.searches
            if limits.overflow == "stop" and limits.total_tokens < needed:
                raise InputError(
                    f"{where}: total_tokens is at least prompt_tokens + turn_tokens x (searches + 1) + "
                    "observation_tokens x searches, unless overflow=drop",
                    f"{limits.total_tokens} against {limits.prompt_tokens} + {limits.turn_tokens} x "
                    f"{limits.searches + 1} + {limits.observation_tokens} x {limits.searches} = {needed}",
                    f"set {where}.total_tokens={needed}, or {role}.limits.overflow=drop",
                )


def overlong_leaves_room(cfg: Config) -> None:
    """Some episodes must be short enough to lose nothing."""
    for role in cfg.roles:
        for where, limits in _stages(cfg, role):
            if limits.overlong >= limits.total_tokens:
                raise InputError(
                    f"{role}.limits.overlong is below {where}.total_tokens",
                    f"{limits.overlong} against {limits.total_tokens}",
                    f"set {role}.limits.overlong={limits.total_tokens // 4}",
                )


def _stages(cfg: Config, role: str) -> Iterator[tuple[str, LimitsConfig]]:
    """The key of each stage and its limits, the block's own first."""
    limits = cfg.block(role).limits
    yield f"{role}.limits", limits.at(0)
    for number, stage in enumerate(limits.stages):
        yield f"{role}.limits.stages[{number}]", limits.at(stage.step)


RULES: tuple[Callable[[Config], None], ...] = (
    stages_follow_each_other,
    turn_fits_episode,
    episode_fits_its_parts,
    overlong_leaves_room,
)
