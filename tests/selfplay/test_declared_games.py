"""A game is a declaration: three of them play without a line of the package, and five more can be written down."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes import FINAL, FakeLearner, Stage, proposer, scripted, solver, tokens, verifier

from ssp.base.errors import InputError
from ssp.base.gamespec import GameSpec
from ssp.config import games
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.game.games import similar
from ssp.game.rewards import difficulty
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build

HERE = Path(__file__).parent / "games"


def configured(game: str, **sizes: Any) -> Config:
    """A small run of that game, of files beside this one."""
    kind = [f"game.kind={HERE / game}:GAME"] if game else []
    return load(
        str(HERE / "small.yaml"), [*kind, *(f"{key.replace('__', '.')}={value}" for key, value in sizes.items())]
    )


def script(ids: list[int], seed: int, turn: int) -> list[int]:
    """Every role's policy, as the prompt asks it."""
    text = tokens().decode(ids)
    asked = re.search(r"<q> (.*?) </q>", text)
    if asked and text.startswith("<target> a </target>"):
        said = f"<answer> {'none' if seed % 3 == 0 else 'the'} </answer>"
    elif asked and text.partition("</q>")[2].split()[:1] == ["<information>"] and "<search>" not in text:
        other = text.split("<information>")[1].split()[0]
        said = f"<answer> {other} </answer>" if seed % 2 else f"<answer> {asked[1].split()[0]} </answer>"
    elif text.startswith("<information>") and asked:
        said = verifier(asked[1], text)
    elif asked:
        said = solver(asked[1], text.split("</q>", 1)[1].strip(), seed)
    else:
        said = proposer(text.split()[1], text.split("</target>", 1)[1].strip(), seed)
    return list(tokens().encode(f"{said} <eos>", add_special_tokens=False))


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    monkeypatch.setattr(build, "engine", lambda *args: ScriptedEngine(script))


def test_a_guide_learns_beside_the_two_and_its_score_multiplies_what_a_question_earns(tmp_path: Path) -> None:
    cfg = configured("guided.py", proposer__batch=8, solver__batch=6, game__attempts=4)
    assert cfg.roles == ("proposer", "guide", "solver") and cfg.block("guide").algorithm == "reinforce"
    stage = Stage(cfg, tmp_path / "run").whole()
    rows = stage.rows()
    said = {row["game_id"]: row for row in rows if row["kind"] == "score"}
    verdicts = {row["id"]: row for row in stage.rows("SELECT * FROM games")}
    assert {row["role"] for row in said.values()} == {"guide"} and {row["state"] for row in said.values()} == {
        "trained"
    }
    assert {row["reward"] for row in said.values()} == {0.0, 1.0}
    for row in rows:
        game = verdicts.get(row["game_id"], {})
        if row["kind"] != "proposal" or row["outcome"] != "scored" or row["reward"] is None:
            continue
        agreed = said[row["game_id"]]["reward"]  # the question is valid, so a guide that agrees likes it
        assert row["reward"] == pytest.approx(agreed * (1 - game["win_rate"]))
    assert {role for role, _, _ in FakeLearner.seen} == set(cfg.roles)
    assert [row["role"] for row in stage.rows("SELECT DISTINCT role FROM commits ORDER BY role")] == [
        "guide",
        "proposer",
        "solver",
    ]


def test_two_solvers_see_each_others_answer_once_and_both_learn(tmp_path: Path) -> None:
    cfg = configured(
        "twosolvers.py", right__batch=6, game__attempts=4, game__questions="dataset", data__questions="world:train"
    )
    stage = Stage(cfg, tmp_path / "run").whole()
    rows = stage.rows()
    counts = {kind: sum(row["kind"] == kind for row in rows) for kind in ("first_left", "left_again", "right_again")}
    assert counts == dict.fromkeys(counts, 3 * 6 * 4)
    assert {row["state"] for row in rows if row["kind"].startswith("first")} == {"kept"}
    trained = {(row["role"], row["kind"]) for row in rows if row["state"] == "trained"}
    assert trained == {("left", "left_again"), ("right", "right_again")}
    shown = _prompts(stage, "left_again")
    finals = _finals(stage, "first_right")
    assert shown and {text.split("<information>")[1].split("<")[0].strip() for text in shown} <= finals


def test_the_duel_under_other_names_is_the_duel(tmp_path: Path) -> None:
    """Rows, draws, verdicts, rewards and what is trained are the same, but for the names."""
    names = {"a": "proposer", "b": "solver", "c": "proposal"}
    played = []
    for folder, game, roles in (("duel", "", ("proposer", "solver")), ("renamed", "renamed.py", ("a", "b"))):
        asks, answers = roles
        sizes = {f"{asks}__batch": 8, f"{answers}__batch": 6, "game__attempts": 4}
        stage = Stage(configured(game, **sizes), tmp_path / folder).whole()
        played.append(_digest(stage, names if game else {}))
    assert played[0] == played[1]


@pytest.mark.parametrize("kind", games.SHIPPED)
def test_shipped_games_are_found_by_their_names(kind: str) -> None:
    spec = games.find(kind)
    assert isinstance(spec, GameSpec) and set(spec.pay) == set(spec.roles)


def test_what_the_field_pays() -> None:
    """The published formulas, by their values."""
    assert [round(difficulty.variance(k / 8), 6) for k in range(5)] == [0.043937, 0.372034, 0.822578, 0.987867, 1.0]
    assert [difficulty.depth(1, 2, h) for h in (1, 2, 3, 10)] == pytest.approx([0.28, 0.36, 0.44, 1.0])
    assert {difficulty.depth(k, 2, 5) for k in (0, 2)} == {0.2}
    assert [difficulty.opening_penalty(opens, 2) for opens in (3, 4, 5)] == [0.0, 0.25, 0.5]
    assert [difficulty.solved_once(k, 5) for k in range(6)] == [0.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    assert (difficulty.solved_once(1, 8), difficulty.solved_once(7, 8)) == (1.0, pytest.approx(1 / 7))
    assert [difficulty.solvable(p) for p in (0.0, 0.25, 0.5, 0.75, 1.0)] == [0.0, 0.75, 0.5, 0.25, 0.0]
    ssr = [difficulty.rarely_solved(p) for p in (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)]
    assert ssr == pytest.approx([-0.8, 0.775, 0.55, 0.1, -0.35, -0.8])
    paper = [difficulty.uncertainty(k / 10) for k in range(11)]
    assert paper == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0])
    assert difficulty.uncertainty_of_code(0.5) - 0.125 == 0.375
    three = ["who won the big cup"] * 3
    others = ["a b", "c d e f", "x y z", "q w e", "where is the moon now"]
    assert similar.shares([*three, *others]) == [0.375] * 3 + [0.125] * 5


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("GAME = 3", "a game is a GameSpec"),
        ("GAME = replace(DUEL, answers='verdict')", "answers and asks name stages that are played"),
        ("GAME = replace(DUEL, roles=('proposer', 'solver', 'judge'))", "each role of a game plays"),
        ("GAME = replace(DUEL, roles=('proposer', 'a b'))", "each role of a game is a word"),
        ("GAME = replace(DUEL, stages=DUEL.stages[:2] + DUEL.stages[3:])", "a game has one Choose"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages, DUEL.stages[0]))", "a name of its own"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages[:3], both, DUEL.stages[4]))", "one role asks, and one answers"),
        ("GAME = replace(DUEL, rows='rows')", "rows are targets, questions, documents or nothing"),
        ("GAME = replace(DUEL, hops=(4, 3, 2, 1))", "a number of hops is asked for where rows are documents"),
        (
            "GAME = replace(DUEL, stages=(DUEL.stages[0], replace(DUEL.stages[1], of='attempt'), *DUEL.stages[2:]))",
            "what is checked is what the stage of `asks` handed in",
        ),
        ("GAME = replace(DUEL, pay={'nobody': DUEL.pay['solver']})", "a game is paid by its stages"),
        ("GAME = replace(DUEL, pay={**DUEL.pay, 'solver': DUEL.pay['proposer']})", "a role for one that it plays"),
        ("GAME = replace(DUEL, pay={})", "a game pays somebody"),
        ("GAME = replace(DUEL, pay={'solver': DUEL.pay['solver']})", "a role that learns is paid for a stage"),
        ("GAME = replace(DUEL, pay={**DUEL.pay, 'solver': (Pay('attempt', by=None),)})", "each Pay names its payer"),
        ("GAME = replace(DUEL, pay={**DUEL.pay, 'solver': Pay('attempt', by=None)})", "pay is a tuple of Pay"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages, 'rest'))", "a tuple of stages"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages, Grading('rest', of='')))", "a stage that is played before"),
        (
            "GAME = replace(DUEL, stages=(*DUEL.stages, Grading('rest')))",
            "missing 1 required positional argument: 'of'",
        ),
        ("GAME = replace(DUEL, stages=(*DUEL.stages[:3], *DUEL.stages[:2:-1]))", "a stage that is played before"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages[2:], *DUEL.stages[:2]))", "who asks plays before Choose"),
        ("GAME = replace(DUEL, stages=(DUEL.stages[0], *DUEL.stages[2:]))", "a Check reads what it handed in"),
        ("GAME = replace(DUEL, stages=DUEL.stages[:4])", "handed in is graded"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages, replace(both, name='rest', choose=None)))", "`choose` takes one"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages, replace(both, name='rest', by=())))", "names who plays"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages, replace(both, name='rest', fields=None)))", "is about something"),
        ("GAME = replace(DUEL, stages=(*DUEL.stages, replace(both, name='rest', times=0)))", "once a game at least"),
        (
            "GAME = replace(DUEL, stages=(*DUEL.stages, replace(both, name='rest', times='game.no')))",
            "key of a setting",
        ),
        ("GAME = replace(DUEL, rows='nothing')", "own prompt of who asks is about a target"),
        ("GAME = replace(DUEL, asks='', stages=DUEL.stages[2:], roles=('solver',))", "has questions for rows"),
        (
            "GAME = replace(DUEL, stages=(*DUEL.stages[:3], replace(DUEL.stages[3], prompt='own'), DUEL.stages[4]), "
            "prompts={'own': '{question} {hint}'})",
            "`exam` names a stage whose prompt needs no more",
        ),
        ("GAME = replace(DUEL, blocks=('proposer',))", "each role of a game has a block of settings"),
    ],
)
def test_a_declaration_that_cannot_be_played_is_refused(tmp_path: Path, line: str, rule: str) -> None:
    file = tmp_path / "broken.py"
    head = "from dataclasses import replace\n\nfrom ssp.base.gamespec import Grading, Pay\n"
    head += "from ssp.game.games.duel import GAME as DUEL\n\n"
    head += "both = replace(DUEL.answering, by=('solver', 'proposer'), choose=lambda game: 'solver')\n"
    file.write_text(head + line + "\n")
    with pytest.raises(InputError, match=rule):
        load("quickstart", [f"game.kind={file}:GAME"])


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (["game.kind=given"], "plays given questions"),
        (["game.kind=self-search"], "plays given questions"),
        (["game.kind=duel", "game.questions=dataset", "data.questions=world:train"], "its own roles ask"),
        (["game.kind=dule"], "game.kind is one of duel"),
    ],
)
def test_a_game_that_does_not_fit_its_questions_is_refused(settings: list[str], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load("quickstart", settings)


def _prompts(stage: Stage, kind: str) -> list[str]:
    from ssp.record.episodes import read

    rows = [row for row in stage.rows() if row["kind"] == kind]
    texts = []
    for row in rows:
        episode = read(stage.folder.episodes / row["file"])[row["row"]]
        texts.append(episode.text[: episode.response_at])
    return texts


def _finals(stage: Stage, kind: str) -> set[str]:
    from ssp.record.episodes import read

    rows = [row for row in stage.rows() if row["kind"] == kind]
    return {read(stage.folder.episodes / row["file"])[row["row"]].final or "none" for row in rows}


def _digest(stage: Stage, names: Mapping[str, str]) -> str:
    """Of all rows of the ledger without times and places, under the duel's names."""
    rows = []
    for sql in ("SELECT * FROM episodes ORDER BY id", "SELECT * FROM games ORDER BY id"):
        for row in stage.rows(sql):
            kept = {key: row[key] for key in row if key not in ("created", "finished", "file", "row")}
            rows.append({key: names.get(str(value), value) for key, value in kept.items()})
    assert all(row["state"] in FINAL for row in rows if "state" in row)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
