"""The checked configuration: every rule of every wing about which settings may stand together. A
setting whose feature is not built is refused, never ignored; no value is changed."""

from collections.abc import Sequence

from ssp.base.errors import hold
from ssp.base.extras import extra
from ssp.base.printable import printable
from ssp.config import load as merging
from ssp.config.crews import QUEUE_ITEMS, batch
from ssp.config.rules import Rule
from ssp.config.schema import Config
from ssp.engines import settings as engines
from ssp.game import declaration
from ssp.game import settings as game
from ssp.game.referee import settings as referee
from ssp.learning import settings as learning
from ssp.search import settings as search
from ssp.selfplay.settings import placement, toolservers
from ssp.selfplay.transfer import settings as transfer


def load(name_or_file: str, overrides: Sequence[str] = (), trusted: bool = True) -> Config:
    """The checked configuration of a shipped name or a file; see `ssp.config.load.load`."""
    return merging.load(name_or_file, overrides, trusted, RULES)


def warnings(cfg: Config) -> list[str]:
    """What is allowed and deserves a second thought, a line each."""
    lines = [*game.warnings(cfg), *learning.warnings(cfg)]
    role = cfg.spec.answerer
    if cfg.protocol == "ssrl" and cfg.block(role).search.kind == "retriever":
        lines.append(
            f"protocol=ssrl asks the {role} to write the information itself, and"
            f" {role}.search.kind=retriever answers in its place: set {role}.search.kind=self (or"
            " first_1, entropy), or protocol=search-r1 for real searches"
        )
    return lines


def league_can_be_played(cfg: Config) -> None:
    """A league is an extra, which says what it needs."""
    match = f"league.match={cfg.league.match}"
    if cfg.league.match != "self":
        extra("league", match, "settings").check(cfg)


def batch_fits_queue(cfg: Config) -> None:
    """A queue takes a training batch whole."""
    largest = max(batch(cfg, role) for role in cfg.roles)
    rule = (
        f"a training batch (proposer.batch, solver.batch x game.attempts) has at most {QUEUE_ITEMS}"
        " episodes"
    )
    hold(largest <= QUEUE_ITEMS, rule, largest, "make the batch, or game.refill, smaller")


def eval_sets_are_distinct(cfg: Config) -> None:
    """Evaluation sets are told apart by name in the metrics."""
    sets = [item.name for item in cfg.data.eval]
    named = len(set(sets)) == len(sets) and "" not in sets
    hold(named, "each evaluation set has a name of its own", ", ".join(sets), "rename one of them")
    rule = "periodic evaluation needs an evaluation set"
    some = bool(sets) or cfg.eval.every <= 0
    hold(some, rule, "data.eval=[]", "add one, or set eval.every=0")


def run_name_is_a_name(cfg: Config) -> None:
    """`run.name` becomes a folder under runs/."""
    name = cfg.run.name
    one = "/" not in name and name not in (".", "..")
    hold(one, "run.name is one folder name", name, "use run.dir=PATH for another place")
    shown = "\n" not in name and "\t" not in name and printable(name) == name
    hold(shown, "run.name holds characters that can be shown", repr(name), "leave the others out")


RULES: tuple[Rule, ...] = (
    game.protocol_exists,
    game.agents_play,
    toolservers.servers_are_reached,
    *learning.RULES,
    declaration.who_learns_is_paid,
    declaration.given_stand_among_asked,
    game.rows_are_those_of_the_game,
    game.questions_fill_batches,
    game.worlds_are_here,
    game.refill_fills_groups,
    game.someone_learns,
    game.who_warms_up_learns,
    league_can_be_played,
    game.actions_are_sampled,
    game.temperatures_are_usable,
    referee.proposals_can_be_checked,
    game.stages_follow_each_other,
    game.turn_fits_episode,
    game.episode_fits_its_parts,
    *engines.RULES,
    *transfer.RULES,
    *search.RULES,
    batch_fits_queue,
    eval_sets_are_distinct,
    run_name_is_a_name,
    game.judge_can_answer,
    game.rewards_exist,
    game.forms_are_read_in_their_tags,
    *placement.RULES,
)
