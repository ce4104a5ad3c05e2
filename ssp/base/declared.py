"""Whether a game's declaration can be played, before anything of it runs."""

import re
from typing import Any

from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import InputError, hold
from ssp.base.gamespec import (
    DOCUMENTS,
    QUESTIONS,
    ROWS,
    TARGETS,
    Check,
    Choose,
    GameSpec,
    Grading,
    Pay,
    Play,
    Stage,
)


def check(spec: object, place: str) -> GameSpec:
    """`spec`, when it is a game that can be run. InputError names what is wrong with the
    declaration at `place`."""
    step = "correct the declaration"
    if not isinstance(spec, GameSpec):
        found = f"{place}: {type(spec).__name__}"
        raise InputError("a game is a GameSpec", found, "write GAME = GameSpec(...) there")
    rule = "the stages of a game are a tuple of stages, also a single one: (Play(...),)"
    hold(_tuple_of(spec.stages, Stage), rule, place, step)
    rule = "a role's pay is a tuple of Pay, also a single one: (Pay(...),)"
    paid = all(_tuple_of(pays, Pay) for pays in spec.pay.values())
    hold(paid, rule, place, step)
    for rules in (_of_roles(spec), _of_stages(spec), _of_pay(spec)):
        for rule, holds in rules.items():
            hold(holds, rule, place, step)
    return spec


def _tuple_of(value: object, kind: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(item, kind) for item in value)


def _of_roles(spec: GameSpec) -> dict[str, bool]:
    """Rules about the roles of a game, and whether they hold."""
    plays = list(spec.plays.values())
    played = {role for play in plays for role in play.roles}
    several = [play for play in plays if len(play.roles) > 1]
    return {
        "each role of a game is a word": all(role.isidentifier() for role in spec.roles),
        "each role of a game is named once": len(set(spec.roles)) == len(spec.roles),
        "each stage that is played names who plays": all(play.roles for play in plays),
        "who plays in a game is one of its roles": played <= set(spec.roles),
        "each role of a game plays in one stage at least": set(spec.roles) <= played,
        "each role of a game has a block of settings": set(spec.roles) <= set(spec.role_blocks),
        "of several roles of a stage `choose` takes one": all(
            callable(play.choose) for play in several
        ),
        "one role asks, and one answers": all(
            len(play.roles) == 1 for play in plays if spec.side(play.name)
        ),
    }


def _of_stages(spec: GameSpec) -> dict[str, bool]:
    """Rules about the stages of a game, and whether they hold."""
    names = [stage.name for stage in spec.stages]
    plays = list(spec.plays.values())
    choices = [stage for stage in spec.stages if isinstance(stage, Choose)]
    before: set[str] = set()
    behind: set[str] = set()
    checked: list[str] = []
    graded: list[str] = []
    late: list[str] = []
    played = before
    for stage in spec.stages:
        if isinstance(stage, Choose):
            played = behind
        elif isinstance(stage, Play):
            played.add(stage.name)
        elif isinstance(stage, Check | Grading):
            (checked if isinstance(stage, Check) else graded).append(stage.of)
            if stage.of not in before | behind:
                late.append(stage.of)
    asks = {spec.asks} - {""}
    return {
        "each stage of a game has a name of its own": len(set(names)) == len(names),
        "a game has one Choose": len(choices) == 1,
        "a prompt is proposer, solver, or one of the game's prompts": all(
            play.prompt in (PROPOSER, SOLVER, *spec.prompts) for play in plays
        ),
        "a stage that is played is about something: `fields` is a function": all(
            callable(play.fields) for play in plays
        ),
        "a stage is played once a game at least": all(
            isinstance(play.times, str) or play.times > 0 for play in plays
        ),
        "the stage that asks has one episode a game": not asks
        or all(play.times == 1 for play in plays if play.name == spec.asks),
        "answers and asks name stages that are played": {spec.answers, *asks} <= before | behind,
        "who asks plays before Choose, and who answers behind it": asks <= before
        and spec.answers in behind,
        "an evaluation is of the role that answers": not spec.exam
        or (spec.exam in spec.plays and spec.examining.roles == spec.answering.roles),
        "an evaluation has a question alone, so `exam` names a stage whose prompt needs no more": (
            _needs(spec) <= {"question"}
        ),
        "what is checked is what the stage of `asks` handed in": set(checked) <= asks,
        "where a stage asks, a Check reads what it handed in": bool(checked) or not asks,
        "what is checked or graded is a stage that is played before": not late,
        "what the stage of `answers` handed in is graded": spec.answers in graded,
        "rows are targets, questions, documents or nothing": spec.rows in ROWS,
        "a game in which no stage asks has questions for rows": bool(asks)
        or spec.rows == QUESTIONS,
        "the protocol's own prompt of who asks is about a target, so rows are targets": spec.rows
        == TARGETS
        or spec.asking is None
        or spec.asking.prompt != PROPOSER,
        "a number of hops is asked for where rows are documents": not spec.hops
        or (spec.rows == DOCUMENTS and min(spec.hops) >= 0 < sum(spec.hops)),
    }


def _needs(spec: GameSpec) -> set[str]:
    """What fills the prompt that an evaluation gives, where it is one of the game's own."""
    examining = spec.plays.get(spec.exam or spec.answers)
    prompt = spec.prompts.get(examining.prompt, "") if examining is not None else ""
    return set(re.findall(r"\{(\w+)\}", prompt))


def _of_pay(spec: GameSpec) -> dict[str, bool]:
    """Rules about who is paid in a game, and whether they hold."""
    own = True
    payers = []
    for role, pays in spec.pay.items():
        for pay in pays:
            payers.append(callable(pay.by))
            play = spec.plays.get(pay.stage)
            own = own and play is not None and role in play.roles
    return {
        "a game pays somebody": bool(payers),
        "a game is paid by its stages: a role for one that it plays": own,
        "each Pay names its payer: `by` is a function": all(payers),
    }
