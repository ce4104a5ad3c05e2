"""Which settings of weight transfer may stand together."""

from ssp.base.errors import hold
from ssp.config.crews import bound
from ssp.config.engines import kinds
from ssp.config.schema import Config


def in_flight_needs_live_engines(cfg: Config) -> None:
    """Laws 1 and 5: in flight are only engines that take weights in the middle of a turn, and only
    roles that may be stale."""
    if not cfg.schedule.in_flight:
        return
    stale = [role for role in cfg.roles if bound(cfg, role) > 0]
    learn = any(cfg.block(role).policy != "frozen" for role in stale)
    out = "or leave schedule.in_flight out"
    rule = "schedule.in_flight concerns roles that learn with schedule.max_staleness.<role> above 0"
    hold(learn, rule, "there is none", f"set schedule.preset=one-step-off, {out}")
    for role in stale:
        engine = cfg.block(role).engine
        rule = f"schedule.in_flight needs {role}.engine.kind={kinds('live')}"
        step = f"set {role}.engine.kind=torch, {out}"
        hold(engine.traits.live, rule, f"engine.kind={engine.kind}", step)


def in_flight_keeps_one_grader(cfg: Config) -> None:
    """Law 4: where several versions may try one question, questions share no baseline. `gae` and
    the other estimators that whiten over the batch share one."""
    asker, answerer = cfg.spec.asker, cfg.spec.answerer
    flies = cfg.schedule.in_flight and bound(cfg, answerer) > 0
    moves = flies and cfg.block(answerer).policy != "frozen"
    if not moves or not asker or cfg.block(asker).policy == "frozen":
        return
    algorithm = cfg.block(asker).algorithm
    alone = algorithm in ("rae", "reinforce_running", "reinforce_none")
    if cfg.game.proposals == 1:
        alone = alone or algorithm in ("grpo", "dr_grpo")
    rule = (
        f"with schedule.in_flight several versions of the {answerer} grade a batch, so its questions"
        " share no baseline"
    )
    step = (
        f"set {asker}.algorithm=grpo, or schedule.max_staleness.{answerer}=0, or leave"
        " schedule.in_flight out"
    )
    hold(alone, rule, f"{asker}.algorithm={algorithm}", step)


RULES = (in_flight_needs_live_engines, in_flight_keeps_one_grader)
