"""What a league needs of the other settings, and what it cannot stand with."""

from ssp.base.errors import hold
from ssp.config.schema import Config


def check(cfg: Config) -> None:
    """InputError unless a league can be played: its members are past versions of two roles that
    both learn, and players change between these and the newest."""
    asker = cfg.spec.asker
    others = [role for role in cfg.roles if role not in (asker, cfg.spec.answerer)]
    frozen = [role for role in cfg.roles if cfg.block(role).policy == "frozen"]
    found = f"game.questions={cfg.game.questions}"
    if others:
        found = f"{', '.join(others)} beside them"
    if frozen:
        found = f"{frozen[0]}.policy=frozen"
    rule = "a league has past versions of two roles that both learn: one asks, one answers"
    hold(asker and not frozen and not others, rule, found, "set league.match=self")

    match = f"league.match={cfg.league.match}"
    least = 2 * cfg.game.proposals  # the newest asks about every other target
    batch = cfg.block(asker).batch
    rule = f"{match} shares a round's targets between versions, so there are two at least"
    found = f"{asker}.batch={batch} with game.proposals={cfg.game.proposals}"
    hold(batch >= least, rule, found, f"set {asker}.batch={least}")

    # A player that takes newer weights in the middle of a turn never goes back; an adapter's folder
    # is no model.
    rule = f"{match} has players change between newest and past weights"
    step = "leave one of the two out"
    flies = cfg.schedule.in_flight
    hold(not flies, rule, "schedule.in_flight=true, where they cannot", step)
    shared = cfg.placement.layout == "shared-base"
    hold(not shared, rule, "placement.layout=shared-base, where they cannot", step)
