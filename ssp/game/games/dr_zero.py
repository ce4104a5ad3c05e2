"""Dr. Zero (arXiv 2601.07055): a proposer reads a passage, chooses an answer in it and asks for that
over `h` hops; nobody verifies; a form score decides what is kept. As published the two learn in
turns, 50 steps of the proposer and 50 of the solver; `AT_ONCE` lets both learn always, which
is ours. So is that the prompt shows 200 words of a passage, for the paper's 256 tokens.

Of the games about a passage the first is the one that the proposer learns from, and which is only
graded; of the others, the candidates, the best by form is kept for the solver."""

from collections.abc import Mapping
from dataclasses import replace

from ssp.base.episode import Outcome
from ssp.base.gamespec import (
    BATCH,
    DOCUMENTS,
    Check,
    Choose,
    GameSpec,
    Grading,
    Keep,
    Pay,
    Payment,
    Phase,
    Play,
)
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.game.games.forms import scored
from ssp.game.games.pay import by_grade
from ssp.game.rewards.difficulty import solved_once
from ssp.game.voids import enough

ASK = """Below stands a passage. Choose a short answer that stands in what you read, and write a \
question that somebody can answer only by following {searches} facts, one after the other; search \
for the facts that the passage does not have. Hand in the question, then a line "answer:" and the \
answer.

{document}"""


PASSAGE_WORDS = 200
"""Words of a passage that are shown: some 256 tokens, which the paper shows."""
QUESTION_WORDS = 50
"""Words of a question that are asked."""


def passage(game: Game, number: int) -> Mapping[str, str]:
    """The passage, and how many hops its question takes."""
    shown = _first(game.hints["document"], PASSAGE_WORDS)
    return {"document": shown, "searches": game.hints["searches"]}


def short_question(game: Game, number: int) -> Mapping[str, str]:
    """The question, cut."""
    return {"question": _first(game.question, QUESTION_WORDS)}


def is_candidate(cfg: Config, game: Game) -> bool:
    """Whether a game competes for the solver, or is about an earlier or a given question; the first
    about each passage does not."""
    return game.number < 0 or game.number % cfg.game.proposals > 0


def form(cfg: Config, game: Game) -> float:
    """The form score of a proposal, from 0 to 1."""
    return game.guide


def by_form_and_difficulty(cfg: Config, game: Game, episode: Brief) -> Payment:
    """0.5 f + d(k), of the proposals that are learned from; d counts only where f > 0."""
    if is_candidate(cfg, game):
        return Payment(Outcome.SCORED, spare=True)
    if not game.valid:
        return Payment(Outcome.REJECTED, game.rule, 0.0)
    if not game.chosen:
        return Payment(Outcome.SCORED, spare=True)
    enough(game.win_rate)
    graded = [game.right(attempt) for attempt in game.attempts]
    known = [right for right in graded if right is not None]
    hard = solved_once(sum(known), len(known))
    return Payment(Outcome.SCORED, "", 0.5 * form(cfg, game) + hard)


def of_kept(cfg: Config, game: Game, episode: Brief) -> Payment:
    """The judge's grade, at a question that was kept for the solver."""
    paid = by_grade(cfg, game, episode)
    return paid if is_candidate(cfg, game) else replace(paid, spare=True)


def _first(text: str, words: int) -> str:
    """The first words of a text."""
    return " ".join(text.split()[:words])


AT_ONCE = GameSpec(
    roles=("proposer", "solver"),
    stages=(
        Play("proposal", by="proposer", prompt="passage", fields=passage, group=BATCH),
        Check("form", of="proposal", by=scored),
        Keep("kept", best=form, among=is_candidate),
        Choose(),
        Play("attempt", by="solver", prompt="solver", fields=short_question, times="game.attempts"),
        Grading("grade", of="attempt"),
    ),
    pay={
        "proposer": (Pay("proposal", by=by_form_and_difficulty),),
        "solver": (Pay("attempt", by=of_kept),),
    },
    asks="proposal",
    answers="attempt",
    rows=DOCUMENTS,
    hops=(4, 3, 2, 1),
    prompts={"passage": ASK},
    settings={
        "proposer.algorithm": "hrpo",
        "game.proposals": 6,
        "game.attempts": 5,
        "referee.verifier": "none",
        "referee.evidence": "none",
        "referee.noise": 0,
    },
)

GAME = replace(AT_ONCE, phases=(Phase(("proposer",), 50), Phase(("solver",), 50)))
