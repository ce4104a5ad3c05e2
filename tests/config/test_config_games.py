"""Role blocks come from the game: a game of one's own with other roles has the same settings under their names."""

from __future__ import annotations

import copy
from pathlib import Path

import cloudpickle
import pytest

from ssp.base.errors import InputError
from ssp.config import own
from ssp.config.crews import bound, learners, players
from ssp.config.load import to_yaml
from ssp.config.schema import Config
from ssp.selfplay.settings import load
from ssp.selfplay.settings.tiny import shrunk
from tests.refusing import refused

GAME = """
from ssp.base.gamespec import ROW, Check, Choose, GameSpec, Grading, Pay, Play
from ssp.game.games.pay import by_grade, by_win_rate, question, target

GAME = GameSpec(
    roles=("a", "b"),
    stages=(
        Play("ask", by="a", prompt="proposer", fields=target, group=ROW),
        Check("verdict", of="ask"),
        Choose(),
        Play("try", by="b", prompt="solver", fields=question, times="game.attempts"),
        Grading("grade", of="try"),
    ),
    pay={"a": (Pay("ask", by=by_win_rate),), "b": (Pay("try", by=by_grade),)},
    asks="ask",
    answers="try",
    settings={"b.batch": 12, "a.batch": 24, "game.attempts": 3},
)
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    return written(tmp_path, GAME)


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text, encoding="utf-8")
    (folder / "mine.yaml").write_text(f"game: {{kind: {folder / 'mine.py'}:GAME}}\n", encoding="utf-8")
    return str(folder / "mine.yaml")


def test_a_game_brings_its_roles(mine: str) -> None:
    typed = ["a.batch=8", "schedule.max_staleness.a=1", "a.loss=tis", "placement.as=3", "defaults.learner.lr=1e-3"]
    cfg = load(mine, typed)
    assert cfg.roles == ("a", "b") and list(cfg.blocks) == ["a", "b"]
    assert (cfg.block("a").batch, cfg.block("b").batch, cfg.game.attempts) == (8, 12, 3)
    assert (bound(cfg, "a"), bound(cfg, "b")) == (1, 0)
    assert (players(cfg, "a"), players(cfg, "b"), players(cfg, "solver")) == (3, 2, 0)
    assert (cfg.a.reward, cfg.b.reward, cfg.b.learner.lr) == ("1-acc", "em", 1e-3)
    assert learners(cfg) == {"a": ("a",), "b": ("b",)}


def test_it_is_written_read_copied_and_sent(mine: str, tmp_path: Path) -> None:
    cfg = load(mine, ["b.limits.searches=2", "placement.bs=1", "schedule.preset=async", "defaults.loss=tis"])
    assert cfg.schedule.max_staleness == {"a": 4, "b": 4}
    (tmp_path / "again.yaml").write_text(to_yaml(cfg), encoding="utf-8")
    assert load(str(tmp_path / "again.yaml")) == cfg != load(mine)
    assert copy.deepcopy(cfg) == cfg == cloudpickle.loads(cloudpickle.dumps(cfg))


def test_every_rule_speaks_of_the_games_roles(mine: str) -> None:
    """Several in one message, each under the name that somebody typed."""
    found = refused("a.loss=none", "schedule.max_staleness.b=1", "b.loss=pg", "b.batch=0", config=mine)
    assert all(key in str(found) for key in ("a.loss is one of", "b.loss must be one of", "b.batch is at least 1"))


@pytest.mark.parametrize(
    "typed", ["proposer.batch=3", "placement.solvers=3", "schedule.max_staleness.solver=1", "c.batch=1"]
)
def test_another_games_roles_are_unknown(typed: str, mine: str) -> None:
    told = refused(typed, config=mine)
    assert told.rule == "every config key must exist"
    assert typed.startswith("c.") or told.next_step == "the game's roles are a and b"


def test_a_typed_game_is_made_small_under_its_own_roles(mine: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("protocol: search-r1\nreferee: {rules: [empty]}\n", encoding="utf-8")
    tiny = shrunk(str(tmp_path / "recipe.yaml"), [f"game.kind={tmp_path / 'mine.py'}:GAME"])
    assert tiny.roles == ("a", "b") and tiny.b.reward.endswith("letters") and tiny.placement.players == {"a": 1, "b": 1}


@pytest.mark.parametrize("name", ["run", "game", "judge", "defaults", "seed"])
def test_a_role_has_a_name_that_is_free(name: str, tmp_path: Path) -> None:
    found = refused(config=written(tmp_path, GAME.replace('"a"', f'"{name}"').replace("a.batch", f"{name}.batch")))
    assert "a name that is no key" in found.rule and name in str(found.found)


def test_a_file_for_another_game_is_told_whose_roles_there_are(mine: str, tmp_path: Path) -> None:
    found = refused(f"game.kind={tmp_path / 'mine.py'}:GAME")
    assert "solver in" in str(found) and "the game's roles are a and b" in str(found)


@pytest.mark.parametrize("key", ["blocks.a.batch", "placement.players.a"])
def test_what_the_schema_calls_them_is_no_key(key: str, mine: str) -> None:
    assert refused(f"{key}=3", config=mine).rule == "every config key must exist"


def test_it_is_own_code(mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--trust-code"):
        load(mine, trusted=False)
    monkeypatch.chdir(tmp_path)
    cfg = load(mine, ["game.kind=mine.py:GAME"])
    own.locate(cfg)
    assert cfg.game.kind == f"{tmp_path / 'mine.py'}:GAME"
    assert own.prints(cfg)["game.kind"].startswith("mine.py:GAME ")


def test_a_shipped_games_settings_lie_under_the_users(tmp_path: Path) -> None:
    given = ["game.kind=self-search", "game.questions=dataset", "data.questions=world:train"]
    (tmp_path / "mine.yaml").write_text("steps: 3\n", encoding="utf-8")
    cfg = load(str(tmp_path / "mine.yaml"), given)
    assert (cfg.solver.search.kind, cfg.protocol) == ("self", "ssrl")
    typed = load(str(tmp_path / "mine.yaml"), [*given, "solver.search.kind=first_1", "protocol=r-search"])
    assert (typed.solver.search.kind, typed.protocol) == ("first_1", "r-search")


def test_without_a_file_it_is_the_duel() -> None:
    cfg = Config()
    assert list(cfg.blocks) == ["proposer", "solver"] and cfg == Config() and cfg.roles == ("proposer", "solver")
    with pytest.raises(AttributeError):
        cfg.nobody  # noqa: B018
