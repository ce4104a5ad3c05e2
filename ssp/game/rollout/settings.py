"""Which token limits of an episode may stand together, in every stage of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ssp.base.errors import InputError
from ssp.config.role import LimitsConfig
from ssp.config.schema import Config


def stages_follow_each_other(cfg: Config) -> None:
    """Limits change at later and later updates: those before the first stage are the block's own."""
    for role in ("proposer", "solver"):
        stages = cfg.block(role).limits.stages
        steps = [stage.step for stage in stages]
        for number, stage in enumerate(stages):
            sizes = (stage.turn_tokens, stage.total_tokens)
            if min(sizes) < 0 or max(sizes) == 0:
                rule = f"{role}.limits.stages[{number}] has turn_tokens or total_tokens above 0 (0: as before)"
                found = f"step={stage.step}, turn_tokens={stage.turn_tokens}, total_tokens={stage.total_tokens}"
                raise InputError(rule, found, "set one of them, or leave the stage out")
        if steps != sorted(set(steps)) or any(step < 2 for step in steps):
            raise InputError(
                f"{role}.limits.stages come in the order of their steps, from update 2 on",
                f"steps {', '.join(map(str, steps))}",
                f"sort them; up to the first one {role}.limits.turn_tokens and total_tokens hold",
            )


def turn_fits_episode(cfg: Config) -> None:
    """One turn must fit into the episode."""
    for _, where, limits in _stages(cfg, *cfg.roles):
        if limits.turn_tokens >= limits.total_tokens:
            raise InputError(
                f"{where}.turn_tokens is below {where}.total_tokens",
                f"{limits.turn_tokens} against {limits.total_tokens}",
                "raise total_tokens",
            )


def episode_fits_its_parts(cfg: Config) -> None:
    """The longest episode that the other limits allow must fit, or the question would run out of context (Search-R1)."""
    for role, where, limits in _stages(cfg, "proposer", "solver"):
        needed = longest(limits)
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
    for role, where, limits in _stages(cfg, *cfg.roles):
        if limits.overlong >= limits.total_tokens:
            raise InputError(
                f"{role}.limits.overlong is below {where}.total_tokens",
                f"{limits.overlong} against {limits.total_tokens}",
                f"set {role}.limits.overlong={limits.total_tokens // 4}",
            )


def overlong_is_reached(cfg: Config) -> None:
    """Some episodes must be able to come near the limit, in one stage at least."""
    for role in cfg.roles:
        found = [(where, limits) for _, where, limits in _stages(cfg, role) if limits.overlong]
        far = [(where, limits) for where, limits in found if limits.total_tokens - limits.overlong >= longest(limits)]
        if found and len(far) == len(found):
            where, limits = far[0]
            raise InputError(
                f"{role}.limits.overlong is for episodes within so many tokens of {where}.total_tokens, which the other "
                "limits must allow",
                f"{limits.total_tokens} - {limits.overlong} tokens, and no episode has more than {longest(limits)}",
                f"set {where}.total_tokens={longest(limits)}, or {role}.limits.overlong=0",
            )


def longest(limits: LimitsConfig) -> int:
    """Tokens of the longest episode that the limits of its parts allow; an invalid turn counts as a search."""
    turns, shown = limits.turn_tokens * (limits.searches + 1), limits.observation_tokens * limits.searches
    return limits.prompt_tokens + turns + shown


def _stages(cfg: Config, *roles: str) -> Iterator[tuple[str, str, LimitsConfig]]:
    """Role, key and limits of each stage of these roles, a block's own limits first."""
    for role in roles:
        limits = cfg.block(role).limits
        yield role, f"{role}.limits", limits.at(0)
        for number, stage in enumerate(limits.stages):
            yield role, f"{role}.limits.stages[{number}]", limits.at(stage.step)


RULES: tuple[Callable[[Config], None], ...] = (
    stages_follow_each_other,
    turn_fits_episode,
    episode_fits_its_parts,
    overlong_leaves_room,
    overlong_is_reached,
)
