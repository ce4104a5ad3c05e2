"""Which settings a league needs, and which it cannot stand with."""

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


def a_league_can_be_played(cfg: Config) -> None:
    """Members are past versions of both roles, which both ask and answer, and which players change between."""
    if cfg.league.match == "self":
        return
    frozen = [role for role in cfg.roles if cfg.block(role).policy == "frozen"]
    if cfg.game.questions != "proposer" or frozen:
        found = f"{frozen[0]}.policy=frozen" if frozen else f"game.questions={cfg.game.questions}"
        rule = "a league has past versions of a proposer and a solver that both learn"
        raise InputError(rule, found, "set league.match=self")
    if cfg.proposer.batch < 2 * cfg.game.proposals:  # the newest proposer asks for every other target of a round
        rule = f"league.match={cfg.league.match} shares a round's targets between proposers, so there are two at least"
        found = f"proposer.batch={cfg.proposer.batch} with game.proposals={cfg.game.proposals}"
        raise InputError(rule, found, f"set proposer.batch={2 * cfg.game.proposals}")
    # A player that takes newer weights in the middle of a turn never goes back; an adapter's folder is no model.
    refused = {
        "schedule.in_flight=true": cfg.schedule.in_flight,
        "placement.layout=shared-base": cfg.placement.layout == "shared-base",
    }
    for setting in (setting for setting, there in refused.items() if there):
        rule = f"league.match={cfg.league.match} has players change between newest and past weights"
        raise InputError(rule, f"{setting}, where they cannot", "leave one of the two out")


RULES: tuple[Callable[[Config], None], ...] = (settings_belong_to_a_kind, a_league_can_be_played)
