"""What a function of somebody's own game raises ends the run with one paragraph, and the run goes on once it is mended."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from fakes import FINAL, Stage, scripted

from launch.cli import run
from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.game import declaration
from ssp.selfplay.settings import load

HEAD = """
from dataclasses import replace

from ssp.base.gamespec import Check, Grading, Keep, Marking, Pay, Payment, Rate
from ssp.game.games.duel import GAME as DUEL
from ssp.game.games.pay import by_grade

ROUNDS = {rounds}
ASK, VERDICT, CHOOSE, ATTEMPT, GRADE = DUEL.stages
seen = set()


def breaks(game):
    seen.add(game.number)
    if len(seen) > ROUNDS:
        raise KeyError("no such thing")


def fields(game, number):
    breaks(game)
    return {{"question": game.question}}


def rates(cfg, games):
    return {{game.id: breaks(game) or 1.0 for game in games}}


def best(cfg, game):
    breaks(game)
    return 0.0


def when(game):
    return breaks(game) is None


def checks(cfg, episode, subject):
    return breaks(episode)


def marks(cfg, game, episodes):
    return breaks(game)


def pays(cfg, game, episode):
    breaks(game)
    return by_grade(cfg, game, episode)


def nan(cfg, game, episode):
    return replace(by_grade(cfg, game, episode), reward=float("nan"))


SOLVES = {{**DUEL.pay, "solver": (Pay("attempt", by=pays),)}}
"""

GAMES = {
    "fields": "replace(DUEL, stages=(ASK, VERDICT, CHOOSE, replace(ATTEMPT, fields=fields), GRADE))",
    "when": "replace(DUEL, stages=(ASK, VERDICT, CHOOSE, replace(ATTEMPT, when=when), GRADE))",
    "rates": "replace(DUEL, stages=(ASK, VERDICT, Rate('rate', by=rates), CHOOSE, ATTEMPT, GRADE))",
    "best": "replace(DUEL, stages=(ASK, VERDICT, Keep('kept', best=best), CHOOSE, ATTEMPT, GRADE))",
    "checks": "replace(DUEL, stages=(ASK, Check('verdict', of='proposal', by=checks), CHOOSE, ATTEMPT, GRADE))",
    "marks": "replace(DUEL, stages=(ASK, VERDICT, CHOOSE, ATTEMPT, Grading('grade', of='attempt', by=marks)))",
    "pays": "replace(DUEL, pay=SOLVES)",
}


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)


def configured(file: Path, game: str, rounds: int = 0) -> Config:
    file.write_text(HEAD.format(rounds=rounds) + f"GAME = {game}\n")
    small = str(Path(__file__).parent / "games" / "small.yaml")
    return load(small, [f"game.kind={file}:GAME", "proposer.batch=8", "solver.batch=6"])


@pytest.mark.covers("GA-01")
@pytest.mark.parametrize("name", GAMES)
def test_what_a_function_raises_is_one_paragraph(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.py"
    stage = Stage(configured(file, GAMES[name]), tmp_path / "run")
    with pytest.raises(InputError) as refused:
        stage.play()
    told = str(refused.value)
    lines = [number for number, line in enumerate(file.read_text().splitlines(), 1) if "raise KeyError" in line]
    assert told.startswith(declaration.RAISED) and "\n" not in told
    assert f"{name} in {file}" in told or name == "checks" and f"checks in {file}" in told
    if name == "checks":  # an episode has no number
        assert "AttributeError" in told
    else:
        assert f"KeyError: 'no such thing' ({file}, line {lines[0]})" in told
    assert "game g00000" in told or name == "rates" and "8 games" in told
    said = io.StringIO()

    def main(argv: object) -> int:
        raise refused.value

    with redirect_stderr(said), pytest.raises(SystemExit) as ended:
        raise SystemExit(run(main))
    assert ended.value.code == 2 and "Traceback" not in said.getvalue()


@pytest.mark.parametrize(
    ("game", "told"),
    [
        ("replace(DUEL, stages=(ASK, VERDICT, Rate('rate', by=lambda cfg, games: {}), *DUEL.stages[2:]))", "no number"),
        ("replace(DUEL, pay={**DUEL.pay, 'solver': (Pay('attempt', by=nan),)})", "a reward of nan for game g0"),
        ("replace(DUEL, pay={**DUEL.pay, 'solver': (Pay('attempt', by=lambda *args: 0.0),)})", "it gives 0.0"),
        ("replace(DUEL, stages=(replace(ASK, fields=lambda game, n: {'target': 3}), *DUEL.stages[1:]))", "target=3"),
        ("replace(DUEL, stages=(replace(ASK, fields=lambda game, n: {}), *DUEL.stages[1:]))", "fields \\[\\]"),
    ],
)
def test_a_value_of_the_wrong_kind_is_one_paragraph(tmp_path: Path, game: str, told: str) -> None:
    stage = Stage(configured(tmp_path / "mine.py", game, rounds=100), tmp_path / "run")
    with pytest.raises(InputError, match=told):
        stage.play()


def test_the_run_goes_on_once_the_function_is_mended(tmp_path: Path) -> None:
    """The ledger's sums hold where it broke; then every episode ends in a final state."""
    cfg = configured(tmp_path / "mine.py", GAMES["pays"], rounds=9)
    stage = Stage(cfg, tmp_path / "run")
    with pytest.raises(InputError, match="pays in"):
        stage.play()
    states = stage.ledger.check()
    assert sum(states["solver"].values()) > 0 and stage.state()["step"] in (1, 2)
    mended = configured(tmp_path / "better.py", GAMES["pays"], rounds=100)
    after = Stage(mended, tmp_path / "run").whole()
    assert after.state()["step"] == 3 and {row["state"] for row in after.rows()} <= FINAL
