"""A hinter learns beside proposer and solver: half of the attempts see its hint, and the difference is its pay."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import FakeLearner, Stage, brief, scripted, tokens, void, world

from ssp.base.episode import Grade, Outcome
from ssp.base.gamespec import Payment
from ssp.base.played import Brief, Game
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.game import voids
from ssp.game.voids import TOO_FEW
from ssp.record.episodes import read
from ssp.selfplay.settings import load
from ssp.selfplay.settle import settle
from ssp.selfplay.workers import build

GAMES = Path(__file__).parent / "games"


def configured(**sizes: Any) -> Config:
    settings = [f"{key.replace('__', '.')}={value}" for key, value in sizes.items()]
    return load(str(GAMES / "small.yaml"), [f"game.kind={GAMES / 'hinted.py'}:GAME", *settings])


def script(ids: list[int], seed: int, turn: int) -> list[int]:
    """Every role's policy, as the prompt asks it: a hint is a true fact, a wrong one, two sentences or nothing."""
    text = tokens().decode(ids)
    hinting = re.match(r"<question> (\S+) (\S+) .*?</question>", text)
    shown = re.match(r"<q> \S+ \S+ .*?</q> <information> (.*?) </information>", text)
    if hinting:
        entity, relation = hinting.groups()
        fact = f"{entity} {relation} {world().answer(f'{entity} {relation} ?')} ."
        hints = (fact, fact, fact, f"{entity} {relation} {entity} .", f"{fact} {fact}")
        said = "nothing" if seed % 6 == 5 else f"<answer> {hints[seed % 6]} </answer>"
    elif shown:
        said = f"<answer> {shown[1].split()[2] if seed % 5 else 'none'} </answer>"
    else:
        return fakes.script(ids, seed, turn)
    return list(tokens().encode(f"{said} <eos>", add_special_tokens=False))


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    monkeypatch.setattr(build, "engine", lambda *args: ScriptedEngine(script))


def half(made: Game, stage: str, right: Sequence[bool | None]) -> list[Brief]:
    """Graded attempts of a stage, None for a void one."""
    attempts = []
    for at, verdict in enumerate(right):
        name = f"{stage}-{made.id}a{at}"
        attempts.append(void(name) if verdict is None else brief(name))
        if verdict is not None:
            made.grades[name] = Grade(verdict, float(verdict))
    return attempts


def hinted(plain: Sequence[bool | None], seen: Sequence[bool | None], id: str = "g1", **changes: Any) -> Game:
    """A game whose attempts without and with a hint ended so; `changes`: of the hint."""
    made = fakes.game(id)
    made.attempts, made.chosen, made.tried_by = half(made, "attempt", plain), True, 3
    said = brief(f"hint-{id}", "hinter", **{"final": "it is near .", **changes})
    made.others = {"hint": [said], "hinted": half(made, "hinted", seen)}
    return made


def pay(cfg: Config, made: Game) -> Payment:
    paid = cfg.spec.payment("hint")
    assert paid is not None
    return voids.paid(cfg, paid.by, made, made.others["hint"][0])


T, F = True, False


def test_a_hint_earns_what_it_adds_to_the_share_of_right_attempts() -> None:
    cfg = configured(game__attempts=4, hinter__invalid_reward=-0.1)
    for plain, seen, wanted in (
        ([T, F, F, F], [T, T, T, F], 0.5),
        ([T, T, T, F], [F, F, F, F], -0.75),
        ([F, F, F, F], [F, F, F, F], 0.0),
        ([T, F, None, None], [T, T, F, None], 2 / 3 - 1 / 2),  # of those that were scored
    ):
        assert pay(cfg, hinted(plain, seen)) == Payment(Outcome.SCORED, "", pytest.approx(wanted))
    for plain, seen in (([T, None, None, None], [T] * 4), ([T] * 4, [T, None, None, None])):
        assert pay(cfg, hinted(plain, seen)) == Payment.void(TOO_FEW)
    nothing = hinted([T, F, F, F], [], final=None, stopped="malformed")
    assert pay(cfg, nothing) == Payment(Outcome.REJECTED, "malformed", -0.1)
    two = hinted([T, F, F, F], [], final="it is near . look there .")
    assert pay(cfg, two) == Payment(Outcome.REJECTED, "sentences", -0.1)
    lost = hinted([T, F, F, F], [], final=None, outcome=Outcome.VOID, cause="retriever_down")
    assert pay(cfg, lost) == Payment.void("retriever_down")


def test_the_solver_is_compared_within_a_half_and_the_proposer_is_paid_as_in_the_duel() -> None:
    """By `dr_grpo`, reward less the mean of the group; the first game has no hint to show."""
    cfg = configured(game__attempts=4, solver__algorithm="dr_grpo")
    first = hinted([T, F, F, F], [], final=None, stopped="malformed")
    second = hinted([T, T, T, F], [T, T, F, F], id="g2")
    settled = settle(cfg, [first, second], 7)
    credits = {one.id: one.credit[0] for one in settled.samples["solver"]}
    wanted = {"attempt-g1": (0.75, -0.25, -0.25, -0.25), "attempt-g2": (0.25, 0.25, 0.25, -0.75)}
    wanted["hinted-g2"] = (0.5, 0.5, -0.5, -0.5)
    assert credits == {f"{name}a{at}": value for name, values in wanted.items() for at, value in enumerate(values)}
    assert [one.reward for one in settled.samples["proposer"]] == [0.75, 0.25]
    assert [one.reward for one in settled.samples["hinter"]] == [0.0, -0.25]


def test_two_steps_of_three_roles(tmp_path: Path) -> None:
    cfg = configured(steps=2, proposer__batch=8, solver__batch=6, game__attempts=4)
    assert cfg.roles == ("proposer", "hinter", "solver") and cfg.block("hinter").algorithm == "reinforce"
    stage = Stage(cfg, tmp_path / "run").whole()
    played: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in stage.rows():
        if row["role"] != "eval":
            played[row["kind"]][row["game_id"]].append(row)
    accepted = {row["id"]: row for row in stage.rows("SELECT * FROM games") if row["attempts"]}
    assert set(played["hint"]) == set(played["attempt"]) == set(accepted)

    seen: Counter[str] = Counter()
    for game, (said,) in played["hint"].items():
        told = read(stage.folder.episodes / said["file"])[said["row"]].final
        assert len(played["attempt"][game]) == 4 and len(played["hinted"][game]) in (0, 4)
        for kind in ("attempt", "hinted"):
            for row in played[kind][game]:
                episode = read(stage.folder.episodes / row["file"])[row["row"]]
                shown = f"<information> {told} </information>"
                assert (shown in episode.text[: episode.response_at]) is (kind == "hinted")
        wanted = 0.0
        if played["hinted"][game]:
            wanted = sum(row["reward"] for row in played["hinted"][game]) / 4 - accepted[game]["win_rate"]
        assert (said["role"], said["reward"]) == ("hinter", pytest.approx(wanted)), said
        seen[said["cause"] or str((wanted > 0) - (wanted < 0))] += 1
        (asked,) = played["proposal"][game]
        assert asked["reward"] == pytest.approx(1 - accepted[game]["win_rate"])
    assert {"1", "-1"} < set(seen) and "sentences" in seen

    assert {role for role, _, _ in FakeLearner.seen} == set(cfg.roles)
    commits = stage.rows("SELECT DISTINCT role, step FROM commits ORDER BY role, step")
    assert {(row["role"], row["step"]) for row in commits} == {(role, step) for role in cfg.roles for step in (1, 2)}
