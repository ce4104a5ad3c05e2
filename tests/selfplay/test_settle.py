"""From graded games to ledger rows and batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import Stage, brief, config, game, void
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp.base.episode import PROPOSER, SOLVER, Episode, Grade, Outcome
from ssp.base.errors import InputError, InvariantError
from ssp.base.played import ASKS, Game
from ssp.base.tokenlog import Kind, TokenLog
from ssp.config.schema import Config
from ssp.game import settings as game_rules
from ssp.game.voids import TOO_FEW
from ssp.learning import algorithms
from ssp.learning import settings as learning_rules
from ssp.learning.batch import collate
from ssp.learning.coldstart import ARTEFACT
from ssp.selfplay.credit import Credits
from ssp.selfplay.paying import spread
from ssp.selfplay.settings import load
from ssp.selfplay.settle import settle
from ssp.selfplay.settled import Settled
from ssp.selfplay.targets import TargetRow, Targets
from ssp.selfplay.workers import learner as learner_worker
from tests import local

T, F = True, False


def row(cfg: Config, made: Game, id: str) -> dict[str, Any]:
    return next(r for r in settle(cfg, [made], 7).rows if r["id"] == id)


@pytest.mark.parametrize("overflow", ["stop", "drop", "answer", "skip"])
def test_of_an_episode_that_ran_out_of_tokens_nothing_is_learned_where_that_is_asked_for(overflow: str) -> None:
    """Nor is any other compared with it."""
    made = game("g1", [T, F, T, F])
    made.attempts[1] = replace(made.attempts[1], stopped="tokens")
    settled = settle(config(solver__limits__overflow=overflow), [made], 7)
    left = overflow == "skip"
    states = {r["id"]: (r["state"], r["cause"], r["reward"]) for r in settled.rows}
    assert states["sg1a1"] == (("dropped", "cut", 0.0) if left else ("queued", "", 0.0))
    assert [item.id for item in settled.samples[SOLVER]] == [f"sg1a{n}" for n in range(4) if n != 1 or not left]
    alone = game("g2", [T, F, T, T])
    alone.attempts[1] = replace(alone.attempts[1], stopped="tokens")
    rest = settle(config(solver__limits__overflow=overflow), [alone], 7)
    assert rest.counts["left/no_signal"] == left and len(rest.samples[SOLVER]) == (0 if left else 4)


def test_a_game_with_signal() -> None:
    made = game("g1", [T, F, T, T])
    settled = settle(config(), [made], 7)
    assert made.win_rate == 0.75
    assert [item.reward for item in settled.samples[SOLVER]] == [1.0, 0.0, 1.0, 1.0]
    assert [(item.id, item.reward) for item in settled.samples[PROPOSER]] == [("pg1", 0.25)]
    assert {r["state"] for r in settled.rows} == {"queued"}
    attempt = next(r for r in settled.rows if r["id"] == "sg1a0")
    assert attempt["opponent_version_min"] == attempt["opponent_version_max"] == 7
    proposal = next(r for r in settled.rows if r["id"] == "pg1")
    assert proposal["opponent_version_min"] == 3
    assert settled.games[0] | {"verdict": "valid", "attempts": 4, "win_rate": 0.75} == settled.games[0]
    assert settled.nbytes[SOLVER] == 4 * 10 * 32
    assert [found.batch(SOLVER, {}).step for found in (settled, settle(config(), [made], 7, 3))] == [1, 3]


@pytest.mark.parametrize(
    "algorithm", ["grpo", "rloo", "ssp.learning.algorithms.estimators:Rloo", "reinforce_pp_baseline"]
)
def test_an_attempt_that_is_left_alone_has_nothing_to_be_compared_with(algorithm: str) -> None:
    """A proposal to whose target no other one is asked for is a group of its own (SSP), and solvers never are."""
    cfg = config(solver__algorithm=algorithm, proposer__algorithm=algorithm)
    settled = settle(cfg, [game("g1", [T, None, None, None]), game("g2", [T, F, None, None])], 7)
    assert {r["id"]: r["cause"] for r in settled.rows if r["state"] == "dropped"} == {"sg1a0": "no_signal"}
    assert [sample.id for sample in settled.samples[SOLVER]] == ["sg2a0", "sg2a1"]
    assert [sample.id for sample in settled.samples[PROPOSER]] == ["pg2"]


def test_an_episode_without_a_model_token_teaches_nothing() -> None:
    """Its prompt left no room to answer: it has no version, and is in nobody's mean."""
    made = game("g1", [T, F, F, T])
    made.attempts[0] = brief("sg1a0", version_min=-1, version_max=-1)
    settled = settle(config(solver__algorithm="reinforce_none"), [made], 7)
    assert {r["id"]: r["cause"] for r in settled.rows if r["state"] == "dropped"} == {"sg1a0": "no_signal"}
    assert [(sample.id, sample.credit) for sample in settled.samples[SOLVER]] == [
        ("sg1a1", (0.0,)),
        ("sg1a2", (0.0,)),
        ("sg1a3", (1.0,)),
    ]


def test_who_does_not_learn_now_is_given_no_credit_and_its_estimator_hears_nothing() -> None:
    cfg = config(solver__algorithm="rae", proposer__warmup_steps=2)
    credits = Credits(cfg)
    for step in (1, 2):
        settled = settle(cfg, [game("g1", [T, F, T, T])], 7, step, credits)
        assert {sample.credit for sample in settled.samples[SOLVER]} == {()}
    assert credits.state()["solver"] == {"baseline": 0.0}
    settled = settle(cfg, [game("g1", [T, F, T, T])], 7, 3, credits)
    assert settled.samples[SOLVER][0].credit == (1.0,) and credits.state()["solver"]["baseline"] > 0


def test_the_share_that_a_fault_took_is_a_figure() -> None:
    made = game("g1", [T, F, T, T])
    made.attempts[3] = void("sg1a3")
    settled = settle(config(), [made], 7)
    assert settled.batch(SOLVER, {}).figures["voided"] == 0.25
    assert "voided" not in settled.batch(PROPOSER, {}).figures


def test_a_replayed_question_names_the_version_that_wrote_it() -> None:
    made = game("g1", [T, F, T, T])
    made.proposal, made.asked_by = None, 2
    attempt = row(config(), made, "sg1a0")
    assert attempt["opponent_version_min"] == attempt["opponent_version_max"] == 2


@pytest.mark.covers("SP-05")
@pytest.mark.parametrize("right", [[T] * 4, [F] * 4])
def test_no_signal_is_dropped_but_the_proposer_learns(right: list[bool | None]) -> None:
    settled = settle(config(), [game("g1", right)], 7)
    attempts = [r for r in settled.rows if r["id"].startswith("s")]
    assert {(r["state"], r["cause"]) for r in attempts} == {("dropped", "no_signal")}
    assert settled.samples[SOLVER] == [] and len(settled.samples[PROPOSER]) == 1


def test_no_signal_is_about_rewards_within_a_group_baseline() -> None:
    """A penalty for malformed answers is signal among wrong ones; a batch baseline needs no spread in the group."""
    made = game("g1", [F, F, F, F])
    made.attempts[0] = brief("sg1a0", final=None, stopped="malformed")
    assert len(settle(config(solver__invalid_reward=-1.0), [made], 7).samples[SOLVER]) == 4
    assert settle(config(), [made], 7).samples[SOLVER] == []
    own = "ssp.learning.algorithms.estimators:"
    kept_by = [("reinforce", 4), ("reinforce_pp_baseline", 4), ("gae", 4), ("dr_grpo", 0), ("rloo", 0)]
    for algorithm, kept in [*kept_by, (f"{own}Grpo", 0), (f"{own}ReinforcePPBaseline", 4)]:
        found = settle(config(solver__algorithm=algorithm), [game("g1", [T] * 4)], 7)
        assert len(found.samples[SOLVER]) == kept, algorithm
    assert len(settle(config(solver__kl__coef=0.1), [game("g1", [T] * 4)], 7).samples[SOLVER]) == 4  # the KL term's


@pytest.mark.parametrize(("coef", "flat"), [(0.0, "dropped no_signal"), (0.1, "queued ")])
def test_refill_trains_its_number_of_groups_and_says_why_others_are_left(coef: float, flat: str) -> None:
    """In order, and with them those without spread that a KL term learns from; each proposal has its reward."""
    rights: list[list[bool | None]] = [[T, F, T, T], [T] * 4, [F, T, F, None], [F, F, T, T], [F] * 4]
    cfg = config(game__refill=2, solver__batch=2, solver__kl__coef=coef)
    settled = settle(cfg, [game(f"g{i}", right) for i, right in enumerate(rights)], 7)
    ends = {
        r["id"][1:3]: f"{r['state']} {r['cause']}" for r in settled.rows if "sg" in r["id"] and r["reward"] is not None
    }
    last = "dropped surplus" if coef else "dropped no_signal"
    assert ends == {"g0": "queued ", "g1": flat, "g2": "queued ", "g3": "dropped surplus", "g4": last}
    assert [item.reward for item in settled.samples[PROPOSER]] == pytest.approx([1 / 4, 0, 2 / 3, 1 / 2, 1])
    assert settled.counts["groups"] == 3
    left = {name: count for name, count in settled.counts.items() if name.startswith("left/")}
    assert left == ({"left/surplus": 2} if coef else {"left/surplus": 1, "left/no_signal": 2})


def test_with_resampling_a_rejected_question_is_surplus() -> None:
    """Its rule is counted and named by its game; no void becomes a drop, and valid ones are trained as ever."""
    rejected = game("g1", valid=False, rule="leakage")
    broken = game("g2", valid=False, void_cause="engine_died", proposal=void("pg2", PROPOSER, "engine_died"))
    settled = settle(config(game__batch="resample"), [rejected, broken, game("g3", [T, F, F, F])], 7)
    by_id = {r["id"]: r for r in settled.rows}
    assert [by_id["pg1"][key] for key in ("state", "outcome", "cause")] == ["dropped", "rejected", "surplus"]
    assert by_id["pg2"]["state"] == "voided" and [item.id for item in settled.samples[PROPOSER]] == ["pg3"]
    assert settled.counts["reject/leakage"] == 1 and settled.games[0]["rule"] == "leakage"
    again = settle(config(game__batch="resample_all"), [rejected, broken, game("g3", [T, F, F, F])], 7)
    assert [(item.id, item.reward) for item in again.samples[PROPOSER]] == [("pg1", 0.0), ("pg3", 0.75)]


def test_a_given_question_has_neither_proposal_nor_opponent() -> None:
    made = game("g1", [T, F, T, F], proposal=None, golds=("x", "y"))
    settled = settle(config(game__questions="dataset"), [made], None)
    assert {r["opponent_version_min"] for r in settled.rows} == {None} and settled.samples[PROPOSER] == []
    assert len(settled.samples[SOLVER]) == 4 and settled.games[0]["verdict"] == "valid"


def test_a_malformed_attempt_is_rejected_and_earns_what_the_config_says() -> None:
    made = game("g1", [T, F, F, F])
    made.attempts[1] = brief("sg1a1", final=None, stopped="tokens")
    found = row(config(solver__invalid_reward=-0.5), made, "sg1a1")
    assert (found["outcome"], found["cause"], found["reward"]) == ("rejected", "tokens", -0.5)
    assert settle(config(), [made], 7).counts["reject/solver_tokens"] == 1


def test_voids_enter_no_batch_and_no_rate() -> None:
    made = game("g1", [T, None, F, None])
    settled = settle(config(), [made], 7)
    assert made.win_rate == 0.5
    assert [item.id for item in settled.samples[SOLVER]] == ["sg1a0", "sg1a2"]
    lost = [r for r in settled.rows if r["outcome"] == "void"]
    assert {(r["state"], r["cause"], r["reward"]) for r in lost} == {("voided", "retriever_down", None)}
    assert settled.counts["void/retriever_down"] == 2


def test_too_few_attempts_void_the_proposal() -> None:
    made = game("g1", [T, None, None, None])
    settled = settle(config(), [made], 7)
    assert made.win_rate is None and settled.samples[PROPOSER] == [] and settled.samples[SOLVER] == []
    proposal = next(r for r in settled.rows if r["id"] == "pg1")
    assert (proposal["state"], proposal["cause"], proposal["reward"]) == ("voided", "too_few_attempts", None)
    mixed = settle(config(game__attempts=5), [game("g1", [T, F, None, None, None])], 7)
    assert mixed.samples[PROPOSER] == [] and [item.id for item in mixed.samples[SOLVER]] == ["sg1a0", "sg1a1"]


def test_rejected_void_and_surplus_proposals() -> None:
    rejected = game("g1", valid=False, rule="leakage")
    broken = game("g2", valid=False, void_cause="engine_died", proposal=void("pg2", PROPOSER, "engine_died"))
    spare = game("g3")
    settled = settle(config(proposer__invalid_reward=-0.25), [rejected, broken, spare], 7)
    by_id = {r["id"]: r for r in settled.rows}
    assert (by_id["pg1"]["state"], by_id["pg1"]["outcome"], by_id["pg1"]["cause"]) == ("queued", "rejected", "leakage")
    assert [(i.id, i.reward) for i in settled.samples[PROPOSER]] == [("pg1", -0.25)]
    assert (by_id["pg2"]["state"], by_id["pg2"]["reward"]) == ("voided", None)
    assert [by_id["pg3"][key] for key in ("state", "cause", "reward")] == ["dropped", "surplus", None]
    assert [g["verdict"] for g in settled.games] == ["rejected", "void", "valid"]
    assert dict(settled.counts) == {"reject/leakage": 1, "void/engine_died": 1}


VERDICT = st.sampled_from([T, F, None])
GAMES = st.lists(
    st.tuples(st.sampled_from(["chosen", "surplus", "rejected", "void"]), st.lists(VERDICT, min_size=4, max_size=4)),
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(GAMES)
def test_every_episode_has_one_row_and_groups_are_games(plan: list[tuple[str, list[bool | None]]]) -> None:
    made = []
    for i, (kind, right) in enumerate(plan):
        id = f"g{i}"
        if kind == "chosen":
            made.append(game(id, right))
        elif kind == "void":
            made.append(game(id, valid=False, void_cause="x", proposal=void(f"p{id}", PROPOSER, "x")))
        else:
            made.append(game(id, valid=kind == "surplus", rule="" if kind == "surplus" else "empty"))
    settled = settle(config(), made, 7)
    ids = [brief.id for one in made for brief in one.episodes]
    assert sorted(r["id"] for r in settled.rows) == sorted(ids) and len(set(ids)) == len(ids)
    trained = {item.id for samples in settled.samples.values() for item in samples}
    assert trained == {r["id"] for r in settled.rows if r["state"] == "queued"}
    for found in settled.rows:
        assert (found["outcome"] == Outcome.VOID.value) == (found["state"] == "voided")
        assert found["state"] != "voided" or (found["reward"] is None and found["cause"])
        assert found["state"] != "queued" or found["reward"] is not None
    groups = {item.group: item.id[: item.id.index("a")] for item in settled.samples[SOLVER]}
    assert all(groups[item.group] == item.id[: item.id.index("a")] for item in settled.samples[SOLVER])
    assert len(set(groups.values())) == len(groups)
    asked = [item.group for item in settled.samples[PROPOSER]]
    assert len(set(asked)) == len(asked)


def test_a_proposer_with_groups_of_one_learns_from_its_raw_reward() -> None:
    """As SSP's recipe trains it: grpo without a baseline, so that a rejected question has no advantage."""
    made = [game("g1", [T, F, F, F]), game("g2", [T, T, T, T]), game("g3", valid=False, rule="empty")]
    items = settle(config(proposer__algorithm="grpo"), made, 7).samples[PROPOSER]
    log = TokenLog()
    log.append(Kind.PROMPT, [5])
    log.append_model([6], [-1.0], 0)
    played = [Episode(item.id, item.id, PROPOSER, 0, log=log, outcome=Outcome.SCORED) for item in items]
    batch = collate(played, [item.reward for item in items], [item.group for item in items])
    assert algorithms.get("grpo").advantages(batch)[:, 1].tolist() == pytest.approx([0.75, 0.0, 0.0], abs=1e-5)


MORE_STAGES = """
from dataclasses import replace

from ssp.base.gamespec import BATCH, Grading, Pay
from ssp.game.games.duel import GAME as DUEL
from ssp.game.games.pay import by_grade

again = replace(DUEL.answering, name="again", times=1)
both = replace(again, name="both", by=("proposer", "solver"), choose=lambda game: "solver", group=BATCH)
graded = (Grading("graded", of="again"), Grading("graded_both", of="both"))
paid = Pay("both", by=by_grade)
GAME = replace(
    DUEL,
    stages=(*DUEL.stages, again, both, *graded),
    pay={
        "proposer": (*DUEL.pay["proposer"], paid),
        "solver": (*DUEL.pay["solver"], Pay("again", by=by_grade), paid),
    },
)
"""


def staged(path: Path, stage: str, algorithm: str, *played: tuple[str, float]) -> list[list[tuple[float, ...]]]:
    """The credits of both roles, of a game with an attempt, which earned 1, and of episodes of a further `stage`."""
    file = path / "stages.py"
    file.write_text(MORE_STAGES)
    cfg = load("quickstart", [f"game.kind={file}:GAME", f"defaults.algorithm={algorithm}"])
    made = game("g1", [T], proposal=None)
    for number, (role, reward) in enumerate(played):
        made.others.setdefault(stage, []).append(brief(f"x{number}", role))
        made.grades[f"x{number}"] = Grade(reward > 0, reward)
    settled = settle(cfg, [made], 7)
    return [[sample.credit for sample in settled.samples[role]] for role in (PROPOSER, SOLVER)]


def test_what_was_asked_for_in_several_stages_has_peers_in_all_of_them(tmp_path: Path) -> None:
    one = (1.0 / (1.0 + 1e-6),)
    assert staged(tmp_path, "again", "hrpo") == [[], [one]]
    compared = pytest.approx(0.5 / 0.5**0.5, abs=1e-5)
    [], [(better,), (worse,)] = staged(tmp_path, "again", "hrpo", (SOLVER, 0.0))
    assert better == -worse == compared


def test_the_roles_of_a_stage_are_compared_each_with_itself(tmp_path: Path) -> None:
    """Each has one episode in the stage, and is alone there."""
    one = pytest.approx(1.0, abs=1e-5)
    assert staged(tmp_path, "both", "hrpo", (PROPOSER, 1.0), (SOLVER, 0.0))[0] == [(one,)]
    half = pytest.approx(0.5, abs=1e-5)
    assert staged(tmp_path, "both", "grpo", (PROPOSER, 0.5), (SOLVER, 1.0)) == [[(half,)], [(one,)]]


# several questions to a target, and what proposals are compared with


def compared(
    number: int, right: list[bool | None] | None, target: str = "t", searches: int = 1, **changes: Any
) -> Game:
    """A game whose proposer searched so often; by default the attempts make its reward."""
    made = game(f"g{number}", right, proposal=brief(f"pg{number}", PROPOSER, searches=searches), **changes)
    made.target = target
    return made


def learned(settled: Settled) -> dict[str, int]:
    return {item.id: item.group for item in settled.samples[PROPOSER]}


def states(settled: Settled) -> dict[str, tuple[str, str]]:
    return {row["id"]: (row["state"], row["cause"]) for row in settled.rows if row["id"].startswith("p")}


def round_() -> list[Game]:
    """Two targets, drawn twice each: rewards 0.25, 0.75; 0.5, 0.5."""
    rights = [[T, T, T, F], [T, F, F, F], [T, T, F, F], [T, F, T, F]]
    return [compared(n, right, f"t{n // 2}", 1 + n % 3) for n, right in enumerate(rights)]


def test_questions_to_one_target_share_a_baseline_and_equal_ones_teach_nothing() -> None:
    cfg = config(game__proposals=2, proposer__algorithm="rloo")
    settled = settle(cfg, round_(), 7)
    assert learned(settled) == {"pg0": 0, "pg1": 0}
    assert states(settled)["pg2"] == states(settled)["pg3"] == ("dropped", "no_signal")
    assert settled.figures(PROPOSER)["groups/flat"] == 0.5
    assert "groups/flat" not in settle(config(), round_(), 7).figures(PROPOSER)  # each is a group of its own
    batch_baseline = settle(config(game__proposals=2, proposer__algorithm="reinforce"), round_(), 7)
    assert len(learned(batch_baseline)) == 4


@pytest.mark.parametrize("lost", [{"void_cause": "retriever_down"}, {"chosen": False}])
def test_what_is_left_of_a_group_is_no_group(lost: dict[str, Any]) -> None:
    games = round_()[:2]
    for key, value in lost.items():
        setattr(games[1], key, value)
    settled = settle(config(game__proposals=2, proposer__algorithm="grpo"), games, 7)
    assert learned(settled) == {} and states(settled)["pg0"] == ("dropped", "no_signal")


def test_a_rejected_question_is_compared_with_the_others() -> None:
    games = round_()[:2]
    games[1] = compared(1, None, "t0", valid=False, rule="leakage")
    cfg = config(game__proposals=2, proposer__algorithm="rloo", proposer__invalid_reward=-1.0)
    settled = settle(cfg, games, 7)
    assert [(item.id, item.reward, item.group) for item in settled.samples[PROPOSER]] == [
        ("pg0", 0.25, 0),
        ("pg1", -1.0, 0),
    ]


def test_each_drawn_row_is_asked_about_so_often() -> None:
    targets = Targets([TargetRow(f"t{i}") for i in range(5)], 6, 0, each=3)
    drawn = [made for number in range(5) for made in targets.take(number, 1)]
    assert [made.number for made in drawn] == list(range(30))
    rows = [made.target for made in drawn[::3]]
    assert [made.target for made in drawn] == [target for target in rows for _ in range(3)]
    assert sorted(rows[:5]) == sorted(rows[5:]) == [f"t{i}" for i in range(5)]
    with pytest.raises(InvariantError, match="no multiple"):
        Targets([TargetRow("t")], 4, 0, each=3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"game__proposals": 3}, "proposer.batch is a multiple"),
        ({"game__proposals": 2, "game__questions": "dataset", "data__questions": "x"}, "game.proposals=2"),
        ({"proposer__algorithm": "rloo"}, "one target, of which there is one"),
        ({"proposer__algorithm": "remax"}, "nobody asks"),  # a greedy question
    ],
)
def test_what_would_have_no_effect_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        learning_rules.settings_fit(config(**changes))
        game_rules.questions_fill_batches(config(**changes))
    good = config(game__proposals=4, proposer__algorithm="rloo")
    learning_rules.settings_fit(good)
    game_rules.questions_fill_batches(good)


# ReMax: one greedy attempt more at each question, kept, whose reward is the baseline of the others


def asked(right: list[bool | None], greedy: bool | None) -> Game:
    made = game("g1", right)
    made.greedy = void("sg1g") if greedy is None else brief("sg1g")
    if greedy is not None:
        made.grades["sg1g"] = Grade(greedy, float(greedy))
    return made


def remax(**changes: Any) -> Config:
    return config(solver__algorithm="remax", **changes)


@pytest.mark.parametrize("greedy", [T, F])
def test_the_greedy_reward_is_the_baseline(greedy: bool) -> None:
    made = asked([T, F, T, F], greedy)
    settled = settle(remax(), [made], 7)
    assert [(item.reward, item.baseline) for item in settled.samples[SOLVER]] == [
        (r, float(greedy)) for r in (1, 0, 1, 0)
    ]
    kept = next(row for row in settled.rows if row["id"] == "sg1g")
    assert (kept["state"], kept["reward"]) == ("kept", float(greedy))
    assert made.win_rate == 0.5 and settled.figures(SOLVER)["reward/all"] == 0.5  # it is no attempt


def test_equal_attempts_teach_where_the_greedy_one_differs() -> None:
    assert len(settle(remax(), [asked([T] * 4, F)], 7).samples[SOLVER]) == 4
    settled = settle(remax(), [asked([T] * 4, T)], 7)
    assert settled.samples[SOLVER] == []
    assert {row["cause"] for row in settled.rows if row["state"] == "dropped"} == {"no_signal"}


def test_without_a_baseline_nothing_is_trained() -> None:
    settled = settle(remax(), [asked([T, F, T, F], None)], 7)
    states = {row["id"]: (row["state"], row["cause"]) for row in settled.rows}
    assert states["sg1g"] == ("voided", "retriever_down") and settled.samples[SOLVER] == []
    assert states["sg1a0"] == ("dropped", "no_signal")
    assert settled.counts["void/retriever_down"] == 1


def test_a_game_with_greedy_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(remax(eval__every=0), tmp_path / "run", jitter=1).played()
    states = stage.settled()[SOLVER]
    games = stage.rows("SELECT id, attempts FROM games WHERE attempts > 0")
    assert states["kept"] == len(games) and {row["attempts"] for row in games} == {4}
    orders = {
        args[1].stem.split("-")[0]: args[1].temperature
        for _, m, args in stage.cast.players["solver"].calls
        if m == "play"
    }
    assert orders["solvergreedy"] == 0.0 and orders["solver"] == 1.0
    again = Stage(remax(eval__every=0), tmp_path / "again", jitter=2).played()
    assert again.ledger.digest() == stage.ledger.digest()


def test_the_learner_takes_the_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advantage of an episode: its reward minus what the greedy one earned."""
    seen: list[torch.Tensor] = []

    class Watched(learner_worker.Learner):
        def _learn(self, batches: Any) -> dict[str, dict[str, float]]:
            batch = batches[SOLVER]
            assert batch.baseline_rewards is not None
            found = self._inner.objectives[SOLVER].algorithm.advantages(batch)
            expected = (batch.rewards - batch.baseline_rewards)[:, None] * batch.mask
            torch.testing.assert_close(found, expected)
            seen.append(found)
            return super()._learn(batches)

    monkeypatch.setattr(local, "Learner", Watched)
    given = {"game__questions": "dataset", "solver__batch": 3, "eval__every": 0}
    stage = Stage(remax(steps=1, **given), tmp_path / "run", model=ARTEFACT).played()
    assert len(seen) == 1 and bool((seen[0] != 0).any())
    assert stage.figures(SOLVER)[-1]["grad_norm"] > 0


def test_the_learner_gets_what_each_turn_earned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through stages, queue and plan to its batch: half a point a turn before the last, whatever was answered."""
    (tmp_path / "paid.py").write_text(
        "def paid(response, golds, turns, judged):\n    return [0.5] * (len(turns) - 1) + [float(judged)]\n"
    )
    seen: list[set[float]] = []

    class Watched(learner_worker.Learner):
        def _learn(self, batches: Any) -> dict[str, dict[str, float]]:
            batch = batches[SOLVER]
            assert batch.token_rewards is not None and batch.token_rewards.shape == batch.mask.shape
            torch.testing.assert_close(batch.token_rewards.sum(1).float(), batch.rewards)
            for row, mask in zip(batch.token_rewards.tolist(), batch.mask.tolist(), strict=True):
                ends = [at for at, on in enumerate(mask) if on and not (mask[at + 1 :] + [False])[0]]
                assert [row[at] for at in ends[:-1]] == [0.5] * (len(ends) - 1) and row[ends[-1]] in (0.0, 1.0)
                seen.append(set(row))
            return super()._learn(batches)

    monkeypatch.setattr(local, "Learner", Watched)
    given = {"game__questions": "dataset", "solver__batch": 6, "eval__every": 0, "steps": 1}
    rewards = {"solver__reward": f"{tmp_path / 'paid.py'}:paid", "solver__algorithm": "grpo_turns"}
    stage = Stage(config(**given, **rewards), tmp_path / "run", model=ARTEFACT).played()
    assert {0.0, 0.5, 1.0} in seen and stage.figures(SOLVER)[-1]["grad_norm"] > 0


def test_a_search_costs_the_turn_that_searched_in_the_learners_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a right attempt: on the last token of each turn before the last; the answer's turn has what the answer earned."""
    seen: list[tuple[float, ...]] = []

    class Watched(learner_worker.Learner):
        def _learn(self, batches: Any) -> dict[str, dict[str, float]]:
            batch = batches[SOLVER]
            assert batch.token_rewards is not None
            for row, mask in zip(batch.token_rewards.tolist(), batch.mask.tolist(), strict=True):
                ends = [at for at, on in enumerate(mask) if on and not (mask[at + 1 :] + [False])[0]]
                seen.append(tuple(row[at] for at in ends))
            return super()._learn(batches)

    monkeypatch.setattr(local, "Learner", Watched)
    given = {"game__questions": "dataset", "solver__batch": 6, "eval__every": 0, "steps": 1}
    costs = {"solver__reward_options": {"search_cost": 0.125}, "solver__algorithm": "grpo_turns"}
    stage = Stage(config(**given, **costs), tmp_path / "run", model=ARTEFACT).played()
    assert {(0.0, 0.0), (-0.125, 1.0)} <= set(seen) and stage.figures(SOLVER)[-1]["grad_norm"] > 0


@pytest.mark.parametrize(("algorithm", "kept"), [("grpo", False), ("grpo_turns", True)])
def test_a_group_that_earned_the_same_by_other_turns_teaches_who_tells_turns_apart(algorithm: str, kept: bool) -> None:
    made = game("g1", [T, T])
    for played, turns in zip(made.attempts, [(0.0, 1.0), (1.0, 0.0)], strict=True):
        made.grades[played.id] = Grade(True, 1.0, turns=turns)
    cfg = config(solver__algorithm=algorithm)
    settled = settle(cfg, [made], 7)
    assert (
        spread(cfg, SOLVER, [made], Credits(cfg)) == kept
        and len(settled.samples[SOLVER]) == 2 * kept
        and settled.counts["groups"] == kept
    )


def test_what_turns_earned_goes_with_the_attempt_and_a_guide_prices_the_proposal() -> None:
    made = game("g1", [T, F, T, T])
    attempt = made.attempts[0].id
    made.grades[attempt] = Grade(True, 1.5, turns=(0.5, 1.0))
    made.guide = 0.5
    settled = settle(config(), [made], 7)
    assert [item.turns for item in settled.samples[SOLVER]] == [(0.5, 1.0), (), (), ()]
    assert [item.reward for item in settled.samples[SOLVER]] == [1.5, 0.0, 1.0, 1.0]
    assert [(item.reward, item.turns) for item in settled.samples[PROPOSER]] == [(0.5 * 0.25, ())]


def test_a_past_proposal_is_no_company_in_a_group() -> None:
    """Of a group of two, one asked by a past version, nothing can be compared."""
    cfg = config(proposer__algorithm="grpo", game__proposals=2)
    for frozen, state in (("", "queued"), (ASKS, "dropped")):
        games = [game("g2", [True] * 4), game("g3", [False] * 4, frozen=frozen)]
        rows = {row["id"]: row["state"] for row in settle(cfg, games, 7, 1).rows}
        assert rows["pg2"] == state and rows["pg3"] == ("kept" if frozen else "queued")


def test_what_a_past_proposer_wrote_is_void_when_too_few_attempts_were_scored() -> None:
    """Else it is kept, whatever came of it."""
    asked = [
        game("g1", [None] * 4, frozen=ASKS),
        game("g2", [True] * 4, frozen=ASKS),
        game("g3", frozen=ASKS),
        game("g4", frozen=ASKS, valid=False, rule="leakage"),
        game("g5", frozen=ASKS, valid=False, void_cause="engine_died"),
    ]
    rows = {row["id"]: row for row in settle(config(), asked, 7, 1).rows if row["id"].startswith("p")}
    assert [rows[f"pg{i}"]["state"] for i in range(1, 6)] == ["voided", "kept", "kept", "kept", "voided"]
    assert [rows[f"pg{i}"]["reward"] for i in (1, 3, 5)] == [None] * 3 and rows["pg2"]["reward"] == 0.0
    assert rows["pg1"]["cause"] == TOO_FEW and rows["pg4"]["cause"] == "leakage"
