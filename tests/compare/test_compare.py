"""`ssp compare`: figures, intervals, pairs and best checkpoints of runs whose answers are known; what is kept for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from launch import compare
from ssp.base.episode import EVALUATION, Episode, State
from ssp.base.errors import Fault, InputError
from ssp.base.models import RECORD
from ssp.config.load import to_yaml
from ssp.record import episodes as transcripts
from ssp.record.ledger import Ledger
from ssp.record.manifest import read_record
from ssp.record.runfolder import LOCK, RunFolder
from ssp.selfplay.best import METRIC, PLAIN, Evaluations
from ssp.selfplay.settings import load
from ssp.selfplay.versions import ANCHORS
from ssp.telemetry.runlog import RunLog, read_metrics
from ssp.views.compare.runs import Run, difference, paired
from ssp.views.replay.record import Records
from tests.replay.replayruns import play

HOPS = {f"q{i}": 1 + i % 3 for i in range(60)}
Curve = dict[int, dict[int, float]]
"""Step → hops → the share of right answers."""


def made(
    folder: Path,
    curve: Curve,
    settings: list[str] | None = None,
    kept: tuple[int, ...] = (),
    voids: int = 0,
    more: Callable[[Ledger, RunLog], None] = lambda ledger, log: None,
) -> Path:
    """A run folder that answered `curve`: of each hop count the first so many questions right. `kept`: steps whose
    checkpoints are there. `more` is written at the end."""
    asked = folder.parent / "asked.jsonl"
    rows = [{"id": id, "question": f"{id} ?", "golden_answers": ["yes"], "metadata": {"hops": hops}}
            for id, hops in HOPS.items()]  # fmt: skip
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = f"data.eval=[{{name: held, file: {asked}, corpus: none}}]"
    cfg = load("quickstart", [sets, f"steps={max(curve)}", f"run.dir={folder}", *(settings or [])])
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(cfg))
    ledger, log = Ledger(folder / "ledger.db"), RunLog(folder)
    for step in range(max(curve) + 1):
        version = ledger.next_version("solver", 1, step)
        if step in kept:
            place = folder / "checkpoints" / "solver" / f"v{version}"
            place.mkdir(parents=True)
            (place / RECORD).write_text(json.dumps({"run_step": step}))
    for step, shares in curve.items():
        evaluate(folder, ledger, log, step, shares, voids if step == max(curve) else 0)
    more(ledger, log)
    ledger.close()
    log.close()
    return folder


def evaluate(
    folder: Path, ledger: Ledger, log: RunLog, step: int, shares: dict[int, float], voids: int = 0, anchor: bool = False
) -> None:
    """An evaluation at `step`; with `anchor` the one of the solver's EMA that comes after it."""
    mark, told = f"{step:06d}-i1.{step + 1 + anchor}", {"kind": EVALUATION, "round": step, "incarnation": 1}
    block, right = [], dict.fromkeys((1, 2, 3), 0)
    for id, hops in HOPS.items():
        episode = Episode(f"eval/held/{id}@{mark}.0", "eval/held", "solver", 0)
        if hops not in shares:
            continue
        right[hops] += (said := right[hops] < round(20 * shares[hops]))
        episode.final, episode.text = "Yes" if said else "no", f"Question: {id} ?\n"
        block.append(episode)
    for episode in block[len(block) - voids :]:
        episode.void(Fault("engine_died"))
    file = f"eval-held-{mark}-0.0.parquet"
    transcripts.write(folder / "episodes" / file, block)
    told |= {"role": "eval", "attempt": step + 1 + anchor, "state": State.RUNNING.value}
    ledger.create([{"id": e.id, "game_id": e.game, "item": e.id[10:].partition("@")[0], **told} for e in block])
    ends = [{"state": State.KEPT, "outcome": "scored"}] * (len(block) - voids)
    ends += [{"state": State.VOIDED, "cause": "engine_died"}] * voids
    version = ANCHORS + step if anchor else step + 1
    ends = [{**end, "policy_version_min": version, "policy_version_max": version} for end in ends]
    ledger.advance(
        [{"id": e.id, "file": file, "row": i, **end} for i, (e, end) in enumerate(zip(block, ends, strict=True))]
    )
    named = {f"eval/accuracy_{hops}hop": value for hops, value in shares.items()}
    named["eval/accuracy"] = named["eval/accuracy_mean123"] = float(np.mean(list(shares.values())))
    if not anchor:
        log.write(step, "eval", named)


HOLD = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
LOW, MID, HIGH = {1: 0.5, 2: 0.2, 3: 0.0}, {1: 1.0, 2: 0.8, 3: 0.6}, {1: 1.0, 2: 0.6, 3: 0.2}


def test_start_end_and_best_have_the_figures_of_the_log_and_intervals_around_them(tmp_path: Path) -> None:
    run = Run(RunFolder(made(tmp_path / "a", {0: LOW, 2: MID, 4: HIGH}, kept=(0, 1, 4))))
    for point, step, value in ((run.start, 0, 0.7 / 3), (run.best, 2, 0.8), (run.end, 4, 0.6)):
        assert (point.step, point.value) == (step, pytest.approx(value))
        assert point.estimate is not None and point.estimate.mean == pytest.approx(value)
        assert point.estimate.low < value < point.estimate.high < point.estimate.low + 0.3
    assert run.ended == "done" and run.seconds >= 0 and run.voids == {}


def test_the_anchors_answers_are_not_the_solvers(tmp_path: Path) -> None:
    """EMA-PG: the policy that the solver is held to is asked the same questions after it, at the same step."""
    folder = tmp_path / "a"
    made(folder, {0: LOW, 2: MID}, more=lambda *books: evaluate(folder, *books, 2, LOW, anchor=True))
    run = Run(RunFolder(folder))
    assert run.end.value == pytest.approx(0.8) and run.end.estimate is not None
    assert run.end.estimate.mean == pytest.approx(run.end.value)


def test_a_metric_is_read_from_evaluations_alone(tmp_path: Path) -> None:
    """The learners of both roles log under the same names, and of a loss the highest is not the best."""

    def learned(ledger: Ledger, log: RunLog) -> None:
        for role, loss in (("proposer", 0.5), ("solver", 0.1)):
            log.write(2, role, {"loss": loss, "eval/accuracy_mean123": 0.99})

    folder = made(tmp_path / "a", {0: LOW, 2: MID}, more=learned)
    assert Run(RunFolder(folder)).best.value == pytest.approx(0.8)
    with pytest.raises(InputError, match="accuracy_mean123"):
        Run(RunFolder(folder), "loss")


def test_the_best_checkpoint_is_named_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curve = {0: LOW, 2: MID, 4: HIGH}
    runs = [made(tmp_path / name, curve, kept=kept) for name, kept in (("there", (2, 4)), ("gone", (1, 3)))]
    assert compare.main([str(run) for run in runs]) == 0
    said = capsys.readouterr().out
    there = f"there: best of 3 evaluations 0.800 at step 2; its checkpoint is v3, {runs[0]}/checkpoints/solver/v3"
    assert there in said
    assert "gone: best of 3 evaluations 0.800 at step 2; its checkpoint is not there (save.every, save.keep)" in said


def test_runs_of_one_seed_and_start_are_paired_question_by_question(tmp_path: Path) -> None:
    better = {1: 1.0, 2: 0.8, 3: 0.7}
    lr = "solver.learner.lr=0.125"
    asked = {"own": [], "clip": [lr], "seeds": [lr, "seed=9"], "start": [lr, f"solver.model={tmp_path}"]}
    asked["again"] = ["seed=9", "save.keep=7"]
    curves = {name: {0: LOW, 3: better if lr in typed else MID} for name, typed in asked.items()}
    runs = [Run(RunFolder(made(tmp_path / name, curves[name], typed))) for name, typed in asked.items()]
    (versus,) = paired(runs)
    assert [(pair["ours"], pair["theirs"]) for pair in versus["pairs"]] == [("clip", "own"), ("seeds", "again")]
    for pair, ours in zip(versus["pairs"], runs[1:3], strict=True):
        found, own = pair["difference"], ours.end.estimate
        assert pair["questions"] == 60 and found["mean"] == pytest.approx(0.1 / 3)
        assert found["low"] < 0.0 < found["high"], "two questions gained and none lost of 60 is not beyond chance"
        assert own is not None and found["high"] - found["low"] < 0.8 * (own.high - own.low), "two differ"
    assert versus["mean"]["mean"] == pytest.approx(0.1 / 3)
    assert paired(runs[:1]) == [] and paired([runs[0], runs[4]]) == [], "one arm has nothing to differ from"


def test_another_verifier_is_another_arm_and_no_other_start(tmp_path: Path) -> None:
    typed = {"own": [], "other": [f"referee.model={tmp_path}"]}
    runs = [Run(RunFolder(made(tmp_path / name, {0: LOW, 3: MID}, more))) for name, more in typed.items()]
    (versus,) = paired(runs)
    assert [(pair["ours"], pair["theirs"]) for pair in versus["pairs"]] == [("other", "own")]


def test_no_seed_counts_twice(tmp_path: Path) -> None:
    """Of runs with the same settings, seed and start the first one counts, in either arm."""
    lr = ["solver.learner.lr=0.125"]
    asked = {"own": (HIGH, []), "twin": (MID, ["save.keep=7"]), "clip": (MID, lr), "clip-twin": (HIGH, lr)}
    runs = [Run(RunFolder(made(tmp_path / name, {0: LOW, 3: end}, typed))) for name, (end, typed) in asked.items()]
    (versus,) = paired(runs)
    (pair,) = versus["pairs"]
    assert (pair["ours"], pair["theirs"]) == ("clip", "own") and pair["difference"]["mean"] == pytest.approx(0.2)
    assert versus["mean"] is None, "one seed has no spread"


def test_voids_are_counted_and_leave_both_sides_of_a_difference(tmp_path: Path) -> None:
    one = Run(RunFolder(made(tmp_path / "one", {0: LOW, 3: MID}, voids=3)))
    other = Run(RunFolder(made(tmp_path / "other", {0: LOW, 3: MID}, ["solver.learner.lr=0.125"])))
    assert one.voids == {"engine_died": 3} and len(one.answers(3)) == 57
    _, questions = difference(one.metric, other.answers(3), one.answers(3))
    assert questions == 57


def test_json_says_what_the_tables_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ["solver.learner.lr=0.125", "solver.reward_options.search_cost=0.05"]
    runs = [
        str(made(tmp_path / "a", {0: LOW, 3: MID}, kept=(3,))),
        str(made(tmp_path / "b", {0: LOW, 3: HIGH}, told)),
    ]
    assert compare.main([*runs, "--json", "--metric", "eval/accuracy_2hop"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["end"]["value"] for run in found["runs"]] == [0.8, 0.6]
    assert found["runs"][0]["checkpoint"]["version"] == 4 and found["runs"][1]["checkpoint"] is None
    assert found["settings"]["solver.learner.lr"][1] == 0.125
    options = {key: values for key, values in found["settings"].items() if "reward_options" in key}
    assert options == {"solver.reward_options.search_cost": [None, 0.05]}
    (pair,) = found["differences"][0]["pairs"]
    assert pair["questions"] == 20 and pair["difference"]["mean"] == pytest.approx(-0.2)
    assert compare.main([*runs, "--metric", "eval/accuracy_2hop"]) == 0
    said = capsys.readouterr().out
    assert "b - a (same seed, same start): -0.200 [" in said
    assert "over 20 questions" in said and "solver.learner.lr: " in said
    assert "eval/accuracy_2hop, with 95 % intervals" in said


def test_an_unfinished_run_and_one_that_is_held_say_so(tmp_path: Path) -> None:
    folder = RunFolder(made(tmp_path / "a", {0: LOW, 3: MID}))
    text = folder.config.read_text()
    folder.config.write_text(text.replace("steps: 3\n", "steps: 40\n", 1))
    assert Run(folder).ended == "stopped, 40 asked"
    (folder.path / LOCK).touch()
    command = [sys.executable, "-c", HOLD, str(folder.path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert Run(folder).ended == "running"
        holder.communicate("", timeout=60)


def test_bad_input_is_refused(tmp_path: Path) -> None:
    run = str(made(tmp_path / "a", {0: LOW, 3: MID}))
    for argv, message in (
        ([run, run], "twice"),
        ([str(tmp_path)], "a run's folder"),
        ([run, "--metric", "eval/accuracy_9hop"], "eval/accuracy_1hop, eval/accuracy_2hop"),
        ([str(tmp_path / "no")], "existing folder.*a run is a folder that ssp train wrote"),
    ):
        with pytest.raises(InputError, match=message):
            compare.main(argv)


def test_other_questions_under_the_same_ids_are_told_and_not_graded(tmp_path: Path) -> None:
    """A world that is drawn anew keeps its ids: answers to the old questions are wrong for the new ones."""
    folder = RunFolder(made(tmp_path / "a", {0: LOW, 3: MID}))
    asked = tmp_path / "asked.jsonl"
    asked.write_text(asked.read_text().replace("q7 ?", "The Q7?"))
    assert Run(folder).start.value == pytest.approx(0.7 / 3), "case, articles and stops are no other question"
    asked.write_text(asked.read_text().replace("The Q7?", "Who?"))
    with pytest.raises(InputError, match="'held'. Found: q7 asks something else there: Who\\?. Next: restore"):
        Run(folder)


def test_a_question_is_the_same_however_the_prompt_has_it(tmp_path: Path) -> None:
    """Prompts lose control strings, tokenizers compose accents, and code of one's own may ask something else."""
    records = Records(RunFolder(made(tmp_path / "a", {0: LOW, 3: MID})))
    asked = tmp_path / "asked.jsonl"
    asked.write_text(asked.read_text().replace("q7 ?", "What does the tag <s> mean to Pele\u0301?"))
    assert records.question("held", "q7", "Question: What does the tag   mean to Pel\u00e9?\n").id == "q7"
    with pytest.raises(InputError, match="something else"):
        records.question("held", "q7", "Which part of it?")
    records.cfg.solver.agent = "own.py:Agent"
    assert records.question("held", "q7", "Which part of it?").id == "q7"


def folder_of(path: Path, metric: str, scores: dict[int, float | None], kept: dict[int, int]) -> RunFolder:
    """`scores`: step → value; `kept`: version → step of a checkpoint that is there."""
    path.mkdir()
    lines = [{"step": step, "role": "eval", "time": 0.0, metric: value} for step, value in scores.items()]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for version, step in kept.items():
        place = path / "checkpoints" / "solver" / f"v{version}"
        place.mkdir(parents=True)
        (place / RECORD).write_text(json.dumps({"run_step": step}))
    return RunFolder(path)


@pytest.mark.parametrize("metric", [METRIC, PLAIN])
@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ({1: 0, 3: 2, 5: 4, 7: 6}, "v5"),
        ({1: 0, 3: 2, 7: 6}, "v3"),  # of two equal ones the first
        ({3: 2, 9: 4, 5: 4}, "v9"),  # played again after going back: the newer one has what was evaluated last
        ({4: 3, 8: 7}, None),  # nobody evaluated these
        ({1: 0}, None),
        ({}, None),
    ],
)
def test_the_best_of_what_is_there(tmp_path: Path, metric: str, kept: dict[int, int], found: str | None) -> None:
    scores = {0: 0.9, 2: 0.5, 4: 0.8, 6: 0.5, 7: None}
    folder = folder_of(tmp_path / "run", metric, scores, kept)
    chosen = Evaluations(folder).best("solver")
    assert (chosen and chosen.name) == found


def test_each_line_of_the_figures_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each checkpoint of a run somebody asks; in the middle it goes back behind its best step."""
    folder = folder_of(tmp_path / "run", METRIC, {2: 0.5, 4: 0.8}, {3: 2, 5: 4, 7: 6})
    known = Evaluations(folder)
    assert known.best("solver") == folder.checkpoint("solver", 5)
    monkeypatch.setattr("ssp.selfplay.best.line_of", None)
    assert known.best("solver") == folder.checkpoint("solver", 5)
    monkeypatch.undo()
    with folder.metrics.open("a") as file:
        file.write(json.dumps({"step": 4, "role": "eval", "back": 2, METRIC: 0.4}) + "\n")
        file.write(json.dumps({"step": 6, "role": "eval", METRIC: 0.6}) + "\n")
    assert known.best("solver") == Evaluations(folder).best("solver") == folder.checkpoint("solver", 7)


def test_a_run_without_figures_has_none(tmp_path: Path) -> None:
    assert Evaluations(RunFolder(tmp_path)).best("solver") is None


@pytest.mark.slow
def test_a_run_keeps_it_beside_the_newest(tmp_path: Path) -> None:
    asked = ["steps=4", "eval.every=1", "eval.final_questions_per_hop=8"]
    folder = RunFolder(play(tmp_path / "run", *asked, "save.keep=1", "health.on_collapse=warn"))
    scores = {line["step"]: line[METRIC] for line in read_metrics(folder.metrics) if METRIC in line and line["step"]}
    first = max(scores, key=lambda step: (scores[step], -step))
    assert len(scores) == 4 and first < 4, "else the newest one is the best, and this shows nothing"
    steps = {read_record(path)["run_step"] for path in folder.versions("solver")}
    assert steps == {first, 4}
    assert len(folder.versions("proposer")) == 1
