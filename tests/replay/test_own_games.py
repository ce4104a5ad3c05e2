"""A run that played a game of somebody's own is looked at by what it wrote of that game; what its functions gave is priced
again where they are trusted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.main import main
from ssp.base import gamefacts, places
from ssp.base.errors import InputError
from ssp.base.gamespec import GameSpec
from ssp.config import games
from ssp.config.load import load
from tests.replay.replayruns import play, rows

GAME = '''
from dataclasses import replace
from pathlib import Path

from ssp.base.gamespec import QUESTIONS, Choose, GameSpec, Grading, Pay, Play
from ssp.game.games.pay import by_grade, question

Path(__file__).with_name("executed").touch()


def ahead(cfg, game, episode):
    """The grade, and half more where the other one's attempt of this number is wrong."""
    paid = by_grade(cfg, game, episode)
    other = by_grade(cfg, game, GAME.episodes(game, "right_try")[episode.attempt])
    return replace(paid, reward=paid.reward + (0.0 if other.reward else 0.5)) if paid.reward else paid


GAME = GameSpec(
    roles=("left", "right"),
    stages=(
        Choose(),
        Play("left_try", by="left", prompt="again", fields=question, times="game.attempts"),
        Play("right_try", by="right", prompt="solver", fields=question, times="game.attempts"),
        Grading("left_grade", of="left_try"),
        Grading("right_grade", of="right_try"),
    ),
    pay={"left": (Pay("left_try", by=ahead),), "right": (Pay("right_try", by=by_grade),)},
    answers="right_try",
    rows=QUESTIONS,
    prompts={"again": "<q> {question} </q>"},
)
'''
CONFIG = """
steps: 1
game: {kind: "FOLDER/mine.py:GAME", questions: dataset, attempts: 3}
data: {questions: "world:train"}
defaults: {batch: 6}
eval: {every: 0, final_questions_per_hop: 2}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(GAME)
    (folder / "mine.yaml").write_text(CONFIG.replace("FOLDER", str(folder)))
    made = play(folder / "run", small=False, config=str(folder / "mine.yaml"))
    (folder / "executed").unlink()
    games.find.cache_clear()
    places.module_of.cache_clear()
    return made


@pytest.fixture
def episode(run: Path) -> dict[str, str]:
    return {row["role"]: f"{run}:{row['id']}" for row in rows(run, "SELECT role, id FROM episodes WHERE reward > 0")}


def shown(argv: list[Any], capsys: pytest.CaptureFixture[str]) -> str:
    code = main([str(word) for word in argv])
    said = capsys.readouterr()
    assert code == 0, said.err + said.out
    return said.out


@pytest.mark.slow
@pytest.mark.parametrize("said", ["board", "bank", "episodes", "compare", "eval", "ask"])
def test_looking_runs_none_of_its_code(
    said: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = {
        "board": ["board", run, "--save", tmp_path / "page.html"],
        "bank": ["bank", run],
        "episodes": ["bank", run, "--episodes"],
        "compare": ["compare", run],
        "eval": ["eval", "--policy", f"left@{run}", "--data", "world:heldout", "--per-hop", "1"],
        "ask": ["ask", "vene mayor ?", "--policy", run],
    }
    shown(argv[said], capsys)
    assert not (run.parent / "executed").exists()


@pytest.mark.slow
def test_an_episode_is_shown_and_priced_again(
    run: Path, episode: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for role in ("left", "right"):
        assert "answer" in shown(["inspect", episode[role]], capsys)
    assert "reward: same" in shown(["inspect", episode["right"], "--check"], capsys), "it is paid as games that ship"
    sealed = shown(["inspect", episode["left"], "--check"], capsys)
    assert "mine.py:GAME is the run's own code (--trust-code runs it)" in sealed
    assert "played as recorded" in shown(["replay", run, "--all", "--limit", "2", "--role", "left"], capsys)
    assert not (run.parent / "executed").exists()
    assert "reward: same" in shown(["inspect", episode["left"], "--check", "--trust-code"], capsys)
    assert (run.parent / "executed").exists()


@pytest.mark.slow
def test_a_role_of_no_game_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(run), "--all", "--role", "solver"]) == 2
    assert "--role is left, right, eval" in capsys.readouterr().err
    assert main(["eval", "--policy", f"solver@{run}"]) == 2
    assert "name left or right" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("text", [None, "{", "[]", '{"is": "Nothing"}', '{"is": "GameSpec"}'])
def test_a_record_that_is_broken_is_told(text: str | None, run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "config.yaml", tmp_path)
    if text is not None:
        (tmp_path / gamefacts.FILE).write_text(text)
    with pytest.raises(InputError, match=gamefacts.FILE):
        load(str(tmp_path / "config.yaml"), trusted=False)


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({"data.corpus": Path("here")}, r"GAME.settings.data.corpus: .*Path\('here'\)"),
        ({"solver.tools": ["search", {1, 2}]}, r"GAME.settings.solver.tools\[1\]: \{1, 2\}"),
        ({7: "seven"}, r"GAME.settings has the keys \[7\]"),
    ],
)
def test_what_would_not_come_back_is_refused_by_name(settings: dict[str, object], at: str) -> None:
    with pytest.raises(InputError, match=f"a declaration is made of .*Found: {at}"):
        gamefacts.text(replace(games.find("duel"), settings=settings))


def test_lists_of_a_declaration_come_back(tmp_path: Path) -> None:
    duel = games.find("duel")
    settings = {"solver.tools": ["search", {"mcp": "x"}], "steps": 3}
    listed = replace(duel, stages=list(duel.stages), settings=settings)  # type: ignore[arg-type]
    (tmp_path / gamefacts.FILE).write_text(gamefacts.text(listed))
    again = games.find(games.seal("mine.py:GAME", tmp_path))
    assert again.settings == settings and [stage.name for stage in again.stages] == [one.name for one in duel.stages]


@pytest.mark.parametrize("name", games.SHIPPED)
def test_what_is_written_of_a_game_gives_it_again(name: str, tmp_path: Path) -> None:
    """All but the functions, of which those of the shipped games are found again by their names."""
    (tmp_path / gamefacts.FILE).write_text(gamefacts.text(games.find(name)))
    again = games.find(games.seal("mine.py:GAME", tmp_path))
    assert json.loads(gamefacts.text(again)).keys() == json.loads(gamefacts.text(games.find(name))).keys()
    assert plain(again) == plain(games.find(name))
    assert games.place(games.seal("mine.py:GAME", tmp_path)) == "mine.py:GAME" == games.place("mine.py:GAME")


def plain(spec: GameSpec) -> list[Any]:
    """What is no function."""
    stages = [(type(stage), stage.name) for stage in spec.stages]
    told = (spec.roles, spec.asker, spec.answerer, spec.rows, spec.hops, spec.phases, spec.role_blocks)
    return [stages, *told, dict(spec.prompts), dict(spec.settings), [spec.prompts_of(role) for role in spec.roles]]
