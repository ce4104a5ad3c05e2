"""Which settings a league needs, and which it cannot stand with.

Owns the rules about `league.*`. Promises that a setting which would have no effect is refused, and that a run which could
not give its players past weights is refused before it starts. Refuses to know matchmaking (`ssp.selfplay.league`).
"""

from __future__ import annotations

from collections.abc import Callable

from ssp.base.errors import InputError
from ssp.config.league import LeagueConfig
from ssp.config.schema import Config


def settings_belong_to_a_kind(cfg: Config) -> None:
    """Without a league its settings do nothing."""
    if cfg.league.match == "self" and cfg.league.every != LeagueConfig.every:
        rule = "league.every counts only with league.match=mix, past, prioritised or best"
        raise InputError(rule, f"{cfg.league.every} with league.match=self", "set league.match=mix")


def two_roles_learn(cfg: Config) -> None:
    """Members are past versions of both roles, which both ask and answer."""
    if cfg.league.match == "self":
        return
    frozen = [role for role in cfg.roles if cfg.block(role).policy == "frozen"]
    if cfg.game.questions != "proposer" or frozen:
        found = f"game.questions={cfg.game.questions}" if not frozen else f"{frozen[0]}.policy=frozen"
        rule = "a league has past versions of a proposer and a solver that both learn"
        raise InputError(rule, found, "set league.match=self")


def targets_can_be_shared(cfg: Config) -> None:
    """The newest proposer asks for every other target of a round: of one alone, nothing is left for a past one."""
    if cfg.league.match != "self" and cfg.proposer.batch < 2 * cfg.game.proposals:
        rule = f"league.match={cfg.league.match} shares a round's targets between proposers, so there are two at least"
        found = f"proposer.batch={cfg.proposer.batch} with game.proposals={cfg.game.proposals}"
        raise InputError(rule, found, f"set proposer.batch={2 * cfg.game.proposals}")


def players_take_past_weights(cfg: Config) -> None:
    """A player that takes newer weights in the middle of a turn never goes back; an adapter's folder is no model."""
    if cfg.league.match == "self":
        return
    refused = {
        "schedule.in_flight=true": cfg.schedule.in_flight,
        "placement.layout=shared-base": cfg.placement.layout == "shared-base",
    }
    for setting, there in refused.items():
        if there:
            rule = f"league.match={cfg.league.match} has players change between newest and past weights"
            raise InputError(rule, f"{setting}, where they cannot", "leave one of the two out")


RULES: tuple[Callable[[Config], None], ...] = (
    settings_belong_to_a_kind,
    two_roles_learn,
    targets_can_be_shared,
    players_take_past_weights,
)
