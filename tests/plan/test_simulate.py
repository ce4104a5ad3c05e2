"""Simulated runs against closed forms, the bounds of the real coordinator in them, and `ssp plan` as it is typed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from launch.main import main
from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import InputError, InvariantError
from ssp.capacity.placement import fits, lay
from ssp.capacity.plan.costs import Costs, Split, capped, choose, colocated, own, work
from ssp.capacity.plan.layouts import settings
from ssp.capacity.plan.simulate import Measured, run_jumping, simulate
from ssp.config.nodes import parse
from ssp.config.schema import Config
from ssp.selfplay.settings import load

FREE = Costs(search_s=0.0, judge_s=0.0)
STEP, EACH, TOKEN = 0.006, 0.00007, 0.00016


def config(*typed: str, sigma: float = 0.0) -> Config:
    """One role that answers given questions: 8 x 8 attempts of 1000 tokens, engines of 64, costs of docs/plan.md."""
    usual = """game.questions=dataset data.questions=world:train schedule.preset= schedule.in_flight=false solver.batch=8
        game.attempts=8 solver.engine.sequences=64 solver.engine.simulated.tokens=1000
        solver.engine.simulated.step_ms=6
        solver.limits.searches=0 solver.limits.turn_tokens=16000 solver.limits.total_tokens=16100"""
    cfg = load("simulated", [*usual.split(), *typed])
    cfg.solver.engine.simulated.sigma = sigma
    return cfg


def stale(bound: int, *typed: str, sigma: float = 0.0) -> Config:
    return config(f"schedule.max_staleness.solver={bound}", *typed, sigma=sigma)


def played(cfg: Config, engines: int = 1, ranks: int = 1, **costs: Any) -> Measured:
    split = Split({"solver": engines}, {"solver": ranks}, engines + ranks, 1)
    return simulate(cfg, split, replace(FREE, **costs))


def test_one_engine_one_role_constant_lengths() -> None:
    play, learn = 1000 * (STEP + EACH * 64), 64 * 1000 * TOKEN
    sync = played(config())
    assert sync.step == pytest.approx(play + learn, rel=1e-6)
    assert sync.bubble["solver"] == pytest.approx(learn / (play + learn), rel=1e-6)
    assert sync.bubble["learner-solver"] == pytest.approx(play / (play + learn), rel=1e-6)
    assert sync.fill["solver"] == pytest.approx(1.0) and sync.staleness["solver"] == (0.0, 0.0)
    overlapped = played(stale(1))
    assert overlapped.step == pytest.approx(max(play, learn), rel=1e-6)
    assert overlapped.staleness["solver"] == (1.0, 1.0)


def test_two_engines_halve_a_batch_and_ranks_a_step() -> None:
    found = played(config("solver.batch=16"), engines=2, ranks=4)
    assert found.step == pytest.approx(1000 * (STEP + EACH * 64) + 128 * 1000 * TOKEN / 4, rel=1e-6)


def test_searches_and_judges_and_syncs_take_their_time() -> None:
    cfg = config("solver.limits.searches=1", "solver.limits.total_tokens=33000")
    play, learn = 2 * 1000 * (STEP + EACH * 64), 2 * 64 * 1000 * TOKEN
    found = played(cfg, search_s=3.0, judge_s=2.0, sync_s=1.5)
    assert found.step == pytest.approx(play + learn + 3.0 + 2.0 + 1.5, rel=1e-6)
    assert found.searches == pytest.approx(64 / found.step)


def test_the_same_configuration_gives_the_same_figures() -> None:
    cfg = stale(2, "schedule.in_flight=true", sigma=0.8)
    assert played(cfg) == played(cfg)


def test_in_flight_the_rounds_share_an_engine() -> None:
    """What one block's last episodes leave of an engine is the next one's, else nobody's."""
    tails = "solver.batch=16"
    alone, shared = (played(stale(4, tails, *more, sigma=0.7)) for more in ([], ["schedule.in_flight=true"]))
    assert shared.fill["solver"] > 0.85 > 0.6 > alone.fill["solver"]
    assert shared.step < 0.7 * alone.step
    assert shared.staleness["solver"][1] <= 4 and not shared.dropped


def test_both_roles_take_turns_on_one_gpu() -> None:
    cfg = load("simulated", ["schedule.preset=sync", "schedule.in_flight=false"])
    for role in cfg.roles:
        cfg.block(role).engine.simulated.sigma = 0.0
    (split,) = choose(cfg, 1, FREE)
    assert split.shared and split.engines == {"proposer": 1, "solver": 1}
    found, (play, learn) = simulate(cfg, split, FREE, 4), work(cfg, FREE)
    assert found.step == pytest.approx(sum(play.values()) + sum(learn.values()))
    assert found.staleness == {"proposer": (0.0, 0.0), "solver": (0.0, 0.0)}


def test_what_is_not_valid_is_not_solved() -> None:
    cfg = load("simulated", ["schedule.preset=one-step-off", "proposer.batch=60", "solver.batch=60", "game.attempts=2"])
    found = simulate(cfg, own(cfg, FREE), replace(FREE, valid=0.5), 4)
    assert 0.35 < found.games / (found.rounds * 60) < 0.65


@pytest.mark.parametrize("typed", [["game.questions=dataset", "data.questions=world:train"], ["proposer.batch=40"]])
def test_refill_is_priced(typed: list[str]) -> None:
    """Where 45 % of the questions have spread, three batches are played for one that is trained whole."""
    cfg = load("simulated", ["solver.batch=40", "schedule.preset=sync", "schedule.in_flight=false", *typed])
    costs = replace(FREE, spread=0.45)
    short, needs = simulate(cfg, own(cfg, costs), costs, 6), work(cfg, costs)
    cfg.game.refill = 4
    whole, need = simulate(cfg, own(cfg, costs), costs, 6), work(cfg, costs)
    assert whole.games / whole.rounds / 40 == pytest.approx(3, abs=0.4)
    assert whole.trained[SOLVER] / short.trained[SOLVER] == pytest.approx(1 / 0.45, rel=0.2)
    for then, now in zip(needs, need, strict=True):
        assert now[SOLVER] / then[SOLVER] == pytest.approx(3 if now is need[0] else 1 / 0.45)


def test_given_questions_are_solved_and_trained_beside_proposed_ones() -> None:
    """Of 8 proposals half are valid; with a quarter of the batch given, 6 questions are solved in place of 4."""
    settings = ["solver.batch=8", "proposer.batch=8", "schedule.preset=sync", "schedule.in_flight=false"]
    cfg, costs = load("simulated", settings), replace(FREE, valid=0.5)
    alone, need = simulate(cfg, own(cfg, costs), costs, 40), work(cfg, costs)
    cfg.game.given = 0.25
    mixed, needs = simulate(cfg, own(cfg, costs), costs, 40), work(cfg, costs)
    assert mixed.trained[SOLVER] / alone.trained[SOLVER] == pytest.approx(6 / 4, rel=0.15)
    assert needs[0][SOLVER] / need[0][SOLVER] == pytest.approx(6 / 4)
    assert needs[1][PROPOSER] == need[1][PROPOSER]


APART = """placement.layout=separate placement.engine_gpus=1 placement.learner_gpus=1 placement.solvers=4
    solver.learner.ranks=4 solver.engine.memory=0.85"""
LAYOUTS = ["search-r1-qwen2.5-7b-grpo", "solver.batch=16", "steps=3600", *APART.split()]


def test_layouts_are_compared_with_hours_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """What is named loads, and is the split whose hours stand in the table: 3,600 steps take as many hours as a
    step takes seconds."""
    assert main(["plan", "--config", *LAYOUTS]) == 0
    said = capsys.readouterr().out
    rows = [
        line.split() for line in said.split("# Layouts")[1].splitlines() if line.startswith(("separate", "colocate"))
    ]
    assert rows[0][:5] == ["separate,", "as", "configured", "4", "4"]
    taking_turns = next(row for row in rows if row[0] == "colocate")
    assert taking_turns[1:4] == ["8", "8", "8"]
    step, hours, gpu_hours = map(float, taking_turns[4:7])
    assert hours == pytest.approx(step, rel=0.01) and gpu_hours == pytest.approx(8 * hours, rel=0.01)
    [best] = [line for line in said.splitlines() if line.startswith("Quickest that fits: colocate")]
    cfg = load(LAYOUTS[0], [*LAYOUTS[1:], *best.partition("type ")[2].split()])
    assert own(cfg, Costs()) == choose(cfg, 8, Costs())[0] and own(cfg, Costs()).colocated
    fits(cfg, lay(cfg, parse("1x8x80")))


def test_a_recipe_is_in_the_quickest_layout_already(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", *LAYOUTS[:2]]) == 0
    assert "\nQuickest that fits: colocate, as configured, " in capsys.readouterr().out


def test_a_layout_that_does_not_fit_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", *LAYOUTS, "placement.nodes=1x8x24"]) == 0
    said = capsys.readouterr().out
    assert "Quickest" not in said and said.count(" does not fit: ") == said.count("too small") > 2


def test_bounds_go_to_0_where_engines_and_learners_take_turns() -> None:
    cfg = load("gpu8")
    split = colocated(cfg, 8, Costs())
    cfg.placement.layout = "colocate"
    typed = settings(cfg, split)
    assert "schedule.preset=sync" in typed and own(load("gpu8", typed), Costs()) == split


def test_splits_follow_the_work_and_hold_together() -> None:
    cfg = load("gpu8", ["defaults.engine.tensor_parallel=2"])
    play, learn = work(cfg, Costs())
    assert play["solver"] > 3 * play["proposer"] and learn["solver"] > 3 * learn["proposer"]
    for split in choose(cfg, 64, Costs()):
        assert 2 * sum(split.engines.values()) + sum(split.ranks.values()) in (63, 64)
        assert split.engines["solver"] > split.engines["proposer"] and split.ranks["solver"] > split.ranks["proposer"]


def test_the_mean_of_capped_lengths() -> None:
    assert capped(2000, 0.8, 1e9) == pytest.approx(2000)
    assert capped(2000, 0.0, 500) == 500
    assert 1900 < capped(2000, 0.8, 16000) < 2000


def test_timers_come_in_their_order_and_take_no_time() -> None:
    heard: list[tuple[str, float]] = []

    async def nap(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        heard.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(nap("c", 3e6), nap("a", 0.5), nap("b", 0.75))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        heard.append(("d", asyncio.get_running_loop().time()))

    run_jumping(main())
    assert heard == [("a", 0.5), ("b", 0.75), ("c", 3e6), ("d", 3e6 + 10)]


def test_a_deadlock_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(InvariantError, match="nothing will ever happen"):
        run_jumping(main())


SMALL = ["--config", "simulated", "solver.batch=4", "proposer.batch=4", "schedule.preset=one-step-off"]


def test_it_prints_a_row_for_each_number_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, "--gpus", "1,8", "--assume", "search_s=0.25"]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["1*", "8", "1*", "8"]
    assert (
        "search_s = 0.25: seconds a search (typed)" in said and "take turns on the same GPUs, with all bounds 0" in said
    )


def test_a_shared_base_with_whole_gpus_is_not_planned_as_one_that_takes_turns() -> None:
    whole = ["placement.engine_gpus=1", "placement.learner_gpus=1", "schedule.preset=one-step-off"]
    with pytest.raises(InputError, match="shared-base where engine and learners share GPUs"):
        own(load("gpu1", whole), FREE)
    assert own(load("gpu1"), FREE).shared


@pytest.mark.parametrize("nothing", ["tokens=0", "step_ms=0 sequence_ms=0 token_ms=0 search_s=0 judge_s=0 tokens=0"])
def test_what_takes_no_time_is_planned_too(nothing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, *(word for each in nothing.split() for word in ("--assume", each))]) == 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--gpus", "0"], "whole number from 1"),
        (["--assume", "luck=1"], "--assume takes one of"),
        (["--assume", "tokens=many"], "--assume takes one of"),
        (["--gpus", "1", "defaults.engine.kind=vllm", "defaults.learner.kind=torch"], ""),
    ],
)
def test_what_it_cannot_plan_is_bad_input(typed: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, *typed]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dr-zero-qwen2.5-3b", "r-zero-qwen3-4b", "spice-qwen3-4b", "cross-fit-qwen2.5-3b"])
def test_a_game_with_rows_and_checks_of_its_own_is_planned(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    asker = load(name).spec.asker
    typed = [f"{asker}.batch=12", "game.proposals=2", "game.attempts=4"]
    assert main(["plan", "--config", name, *typed]) == 0
    assert asker in capsys.readouterr().out
