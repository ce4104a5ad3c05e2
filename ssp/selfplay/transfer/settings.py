"""Which settings of weight transfer may stand together."""

from ssp.base.errors import hold
from ssp.config.crews import bound, takes_turns
from ssp.config.schema import Config


def in_flight_needs_live_engines(cfg: Config) -> None:
    """Laws 1 and 5: only engines that take weights in the middle of a turn, only for roles that may
    be stale."""
    if not cfg.schedule.in_flight:
        return
    stale = [role for role in cfg.roles if bound(cfg, role) > 0]
    learn = any(cfg.block(role).policy != "frozen" for role in stale)
    out = "or leave schedule.in_flight out"
    rule = "schedule.in_flight concerns roles that learn with schedule.max_staleness.<role> above 0"
    hold(learn, rule, "there is none", f"set schedule.preset=one-step-off, {out}")
    for role in stale:
        kind = cfg.block(role).engine.kind
        rule = f"schedule.in_flight needs {role}.engine.kind=torch or vllm"
        step = f"set {role}.engine.kind=torch, {out}"
        hold(kind in ("vllm", "simulated", "torch"), rule, f"engine.kind={kind}", step)


def in_flight_keeps_one_grader(cfg: Config) -> None:
    """Law 4: where several versions may try one question, questions share no
    baseline. `gae` and the other estimators that whiten over the batch do."""
    asker, answerer = cfg.spec.asker, cfg.spec.answerer
    flies = cfg.schedule.in_flight and bound(cfg, answerer) > 0
    moves = flies and cfg.block(answerer).policy != "frozen"
    if not moves or not asker or cfg.block(asker).policy == "frozen":
        return
    block = cfg.block(asker)
    alone = block.algorithm in ("grpo", "dr_grpo") and cfg.game.proposals == 1
    alone = alone or block.algorithm in ("rae", "reinforce_running", "reinforce_none")
    rule = (
        f"with schedule.in_flight several versions of the {answerer} grade a batch, so its questions"
        " share no baseline"
    )
    found = f"{asker}.algorithm={block.algorithm}"
    step = (
        f"set {asker}.algorithm=grpo, or schedule.max_staleness.{answerer}=0, or leave"
        " schedule.in_flight out"
    )
    hold(alone, rule, found, step)


def broadcasts_reach_awake_players_only(cfg: Config) -> None:
    """A verifier that plays the live solver fetches weights when it is asked; an engine that sleeps
    takes none."""
    if cfg.transfer.kind != "broadcast":
        return
    live = cfg.spec.asker and cfg.referee.verifier == "solver"
    rule = "transfer.kind=broadcast reaches players only, so referee.verifier is not solver"
    hold(
        not live,
        rule,
        "referee.verifier=solver",
        "set transfer.kind=auto, or referee.verifier=frozen",
    )
    rule = (
        "weights go by the host where engines and learners take turns on a GPU: an engine sleeps"
        " meanwhile"
    )
    found = f"transfer.kind=broadcast placement.layout={cfg.placement.layout}"
    hold(not takes_turns(cfg), rule, found, "set transfer.kind=auto")


RULES = (
    in_flight_needs_live_engines,
    in_flight_keeps_one_grader,
    broadcasts_reach_awake_players_only,
)
