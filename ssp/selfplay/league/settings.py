"""Which settings a league needs, and which it cannot stand with."""

from ssp.base.errors import hold
from ssp.config.rules import Rule
from ssp.config.schema import Config, LeagueConfig


def settings_belong_to_a_kind(cfg: Config) -> None:
    """Without a league its settings do nothing."""
    counts = cfg.league.match != "self" or cfg.league.every == LeagueConfig.every
    rule = "league.every counts only with league.match=mix or prioritised"
    hold(counts, rule, f"{cfg.league.every} with league.match=self", "set league.match=mix")


def a_league_can_be_played(cfg: Config) -> None:
    """Members are past versions of both roles, which both ask and answer, and which players change
    between."""
    if cfg.league.match == "self":
        return
    frozen = [role for role in cfg.roles if cfg.block(role).policy == "frozen"]
    found = f"{frozen[0]}.policy=frozen" if frozen else f"game.questions={cfg.game.questions}"
    rule = "a league has past versions of a proposer and a solver that both learn"
    asker = cfg.spec.asker
    hold(asker and not frozen, rule, found, "set league.match=self")
    match = f"league.match={cfg.league.match}"
    least = 2 * cfg.game.proposals  # the newest asks about every other target
    rule = f"{match} shares a round's targets between proposers, so there are two at least"
    batch = cfg.block(asker).batch
    found = f"{asker}.batch={batch} with game.proposals={cfg.game.proposals}"
    hold(batch >= least, rule, found, f"set {asker}.batch={least}")
    # A player that takes newer weights in the middle of a turn never goes back; an adapter's folder
    # is no model.
    rule = f"{match} has players change between newest and past weights"
    flies, shared = cfg.schedule.in_flight, cfg.placement.layout == "shared-base"
    hold(not flies, rule, "schedule.in_flight=true, where they cannot", "leave one of the two out")
    hold(
        not shared,
        rule,
        "placement.layout=shared-base, where they cannot",
        "leave one of the two out",
    )


RULES: tuple[Rule, ...] = (settings_belong_to_a_kind, a_league_can_be_played)
