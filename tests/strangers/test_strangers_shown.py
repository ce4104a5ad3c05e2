"""What a newcomer is shown: differences, names and colours that are right."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from launch import ask, compare
from ssp.base.episode import SOLVER, Episode
from ssp.base.errors import InputError
from ssp.config.load import to_yaml
from ssp.config.schema import Config, EvalSet
from ssp.game.world import World
from ssp.game.world.files import SEEDS, resolve
from ssp.record.runfolder import RunFolder
from ssp.selfplay.scene import concrete, read_scene
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from ssp.telemetry.console import Console
from ssp.telemetry.display import Display
from tests.board.boarded import by_hand, looked, rows
from tests.compare.test_compare import LOW, MID, made

GAME = {"game/played": 6.0, "time/step": 3.0, "tokens_per_second": 5.0, "game/win_rate": 0.5}
HELDOUT = World(SEEDS["heldout"])
ROOT = Path(__file__).parents[2]


def table(cfg: Config, folder: Path, valid: list[float | None], scores: dict[int, float]) -> dict[str, list[str]]:
    """What the table at a run's end says: label → start, end, change; `note` is what stands below it."""
    folder.mkdir(exist_ok=True)
    out = io.StringIO()
    shown = Display(cfg, RunFolder(folder), Console(out, width=140))
    shown.restart(0)
    for step, value in enumerate(valid, 1):
        figures = GAME if value is None else {**GAME, "game/valid_rate": value}
        shown.write(step, "game", figures)
        for role in ("proposer", "solver"):
            shown.write(step, role, {"reward/mean": 0.5})
    for step, score in scores.items():
        shown.write(step, "eval", {"eval/accuracy": score})
    shown.finish()
    shown.close()
    text = out.getvalue()
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    found = {cell[0]: cell[1:] for cell in cells}
    return {**found, "note": [line.strip() for line in text.splitlines() if "of the others: " in line], "said": [text]}


VALID = "proposer: share of accepted questions"


@pytest.mark.parametrize(
    ("valid", "wanted", "note"),
    [
        ([0.4, 0.5, 0.5, 0.5, 0.5, *[0.9] * 9, 0.3, 0.3, 0.3, 0.3, 0.4], ["48.0%", "32.0%", "-16.0%"], "last 5 steps"),
        ([0.4, 0.6, 0.5, 0.2, 0.4], ["50.0%", "30.0%", "-20.0%"], "last 2 steps"),
        ([0.4, 0.9, 0.5], ["40.0%", "50.0%", "+10.0%"], "the last step"),
        ([0.4, None, None, 0.2], ["40.0%", "20.0%", "-20.0%"], "last 2 steps"),
        ([0.4], ["-", "40.0%", "-"], "the last step"),
    ],
)
def test_the_table_compares_means_of_steps_and_says_so(
    tmp_path: Path, valid: list[float | None], wanted: list[str], note: str
) -> None:
    found = table(load("quickstart", []), tmp_path, valid, {0: 0.25, 9: 0.5, 12: 0.75})
    assert found[VALID] == wanted
    assert found["solver: held-out accuracy"] == ["25.0%", "75.0%", "+50.0%"], "evaluations are compared one by one"
    assert len(found["note"]) == 1 and found["note"][0].endswith(note)


def test_steps_that_a_run_went_back_behind_are_in_no_mean(tmp_path: Path) -> None:
    out = io.StringIO()
    shown = Display(load("quickstart", []), RunFolder(tmp_path), Console(out, width=140))
    for step in range(1, 5):
        shown.write(step, "game", {**GAME, "game/valid_rate": 0.1 * step})
    shown.restart(2)
    shown.finish()
    shown.close()
    assert re.search(r"share of accepted questions +│ 10.0% │ 20.0% │", out.getvalue())


MINE = "data.eval=[{name: mine, file: %s, corpus: wiki.jsonl}]"
GIVEN = ["game.questions=dataset", "data.corpus=wiki.jsonl"]


@pytest.mark.parametrize(
    ("config", "settings", "called"),
    [
        ("quickstart", [], "held-out accuracy"),
        ("quickstart", ["data.eval=[{name: mine, file: world:train, corpus: world:train}]"], "accuracy on mine"),
        ("quickstart", ["game.questions=dataset", "data.questions=world:train"], "held-out accuracy"),
        ("quickstart", [*GIVEN, "data.questions=train.jsonl", MINE % "./train.jsonl"], "accuracy on mine"),
        ("quickstart", [*GIVEN, "data.questions=train.jsonl", MINE % "test.jsonl"], "held-out accuracy"),
        ("quickstart", ["data.corpus=wiki.jsonl", "data.targets=t.jsonl", MINE % "t.jsonl"], "accuracy on mine"),
        ("quickstart", ["data.eval=[]", "eval.every=0"], "accuracy"),
    ],
)
def test_held_out_is_said_only_of_what_is(tmp_path: Path, config: str, settings: list[str], called: str) -> None:
    cfg = load(config, settings)
    said = table(cfg, tmp_path / "run", [0.5], {0: 0.25, 1: 0.5})["said"][0]
    assert f"! step 0: {called} 25.0%" in said and f"solver: {called} " in said
    assert ("held-out" in said) == ("held-out" in called)
    run = by_hand(tmp_path / "board", ["why ?"])
    run.config.write_text(to_yaml(cfg))
    evaluation = rows(looked(run))["run", ""]["evaluation"]
    assert (evaluation is not None and evaluation["held"]) == ("held-out" in called), "the board says the same"


@pytest.mark.parametrize(("name", "called"), [("world:train", "accuracy on mine"), ("world:heldout", "held-out")])
def test_it_is_the_same_where_a_run_has_files_in_place_of_names(tmp_path: Path, name: str, called: str) -> None:
    cfg = Config(steps=4)
    cfg.data.eval = [EvalSet("mine", name, name)]
    assert f"! step 0: {called}" in table(concrete(cfg), tmp_path, [0.5], {0: 0.25})["said"][0]


def test_questions_whose_prompt_is_too_long_are_left_out_and_counted_where_that_is_asked_for() -> None:
    asked = ["game.questions=dataset", "data.questions=world:train", "solver.limits.prompt_tokens=6"]
    cfg = load("quickstart", [*asked, "solver.limits.overflow=skip"])
    every, some = read_scene(load("quickstart", asked)), read_scene(cfg)
    spoken = build.renderer(cfg, "solver", every.models["solver"])
    prompts = [spoken.prompt("solver", {"question": row.question}) for row in every.items]
    fit = [row for row, ids in zip(every.items, spoken.encode(prompts), strict=True) if len(ids) <= 6]
    assert some.items == fit and 0 < some.skipped == len(every.items) - len(fit) < len(every.items)
    (said,) = [line for line in some.warnings() if "left out" in line]
    assert f"{some.skipped:,} given questions have a prompt above solver.limits.prompt_tokens=6" in said
    with pytest.raises(InputError, match="none of .* at 1. Next: raise solver.limits.prompt_tokens"):
        read_scene(load("quickstart", [*asked[:2], "solver.limits.prompt_tokens=1", "solver.limits.overflow=skip"]))


def test_a_set_that_asks_what_is_trained_is_told_whatever_its_file_is_called(tmp_path: Path) -> None:
    rows = Path(resolve("world:train", "questions")).read_text(encoding="utf-8").splitlines()
    for name, part in (("train", rows[:40]), ("copy", rows[30:60]), ("other", rows[60:70])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(part) + "\n", encoding="utf-8")
    sets = [f"{{name: {name}, file: {tmp_path / name}.jsonl, corpus: world:train}}" for name in ("copy", "other")]
    asked = ["game.questions=dataset", f"data.questions={tmp_path / 'train.jsonl'}", f"data.eval=[{', '.join(sets)}]"]
    (said,) = read_scene(load("quickstart", asked)).warnings()
    assert "10 of the 30 questions of evaluation set copy" in said
    assert read_scene(load("quickstart", [])).warnings() == []


def test_runs_are_subtracted_at_the_last_step_that_both_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long, other = {1: 0.6, 2: 0.6, 3: 0.6}, {1: 0.4, 2: 0.4, 3: 0.4}, ["solver.learner.lr=0.125"]
    runs = [
        str(made(tmp_path / "short", {0: LOW, 2: short})),
        str(made(tmp_path / "long", {0: LOW, 2: long, 6: MID}, other)),
    ]
    assert compare.main([*runs, "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["differences"][0]["pairs"]
    assert (pair["step"], pair["ends"]) == (2, [6, 2]) and pair["difference"]["mean"] == pytest.approx(-0.2)
    assert compare.main(runs) == 0
    assert "after step 2, the last one at which both were evaluated" in capsys.readouterr().out
    runs[1] = str(made(tmp_path / "never", {0: LOW, 5: MID}, other))
    assert compare.main([*runs, "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["differences"][0]["pairs"]
    assert (pair["step"], pair["difference"]) == (0, None), "both have the start alone, where they are one policy"
    assert compare.main(runs) == 0 and "+0.000" not in capsys.readouterr().out


def test_a_difference_of_questions_that_all_agree_is_not_certain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        str(made(tmp_path / "a", {0: LOW, 2: MID})),
        str(made(tmp_path / "b", {0: LOW, 2: MID}, ["solver.learner.lr=0.125"])),
    ]
    assert compare.main([*runs, "--json", "--metric", "eval/accuracy_1hop"]) == 0
    found = json.loads(capsys.readouterr().out)
    end, (pair,) = found["runs"][0]["end"], found["differences"][0]["pairs"]
    assert end["value"] == 1.0 and end["interval"]["low"] == pytest.approx(0.8389, abs=1e-4), "20 of 20"
    assert pair["difference"]["low"] < 0.0 < pair["difference"]["high"]


GREEN, RED = "\x1b[1;32m", "\x1b[1;31m"


@pytest.mark.parametrize(
    ("answer", "settings", "colour", "gold"),
    [
        ("teku", [], GREEN, False),
        ("fiku", [], RED, True),
        ("fiku", ["judge.kind=llm", "judge.url=http://127.0.0.1:1/v1", "judge.model=m"], "", True),
        ("fiku", ["data.corpus={corpus}", "data.eval=[]", "eval.every=0"], "", False),
    ],
)
def test_an_answer_is_green_where_it_is_known_to_be_right(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    settings: list[str],
    colour: str,
    gold: bool,
) -> None:
    """A question of the held-out world: greedy, and beside its right answer where that is known."""
    corpus = tmp_path / "mine.jsonl"
    corpus.write_text('{"id": "1", "contents": "\\"vene\\"\\nvene mayor pime ."}\n')
    heats: list[float] = []

    def player(cfg: Config, role: str, folder: Path, search: Any, heat: float) -> Any:
        heats.append(heat)
        return lambda tasks: [Episode("ask", "ask", SOLVER, 0, final=answer, stopped="final")]

    monkeypatch.setattr(build, "player", player)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    question = "vene mayor birthplace ?"
    assert HELDOUT.answer(question) == "teku"
    assert ask.main([question, *(one.format(corpus=corpus) for one in settings)]) == 0
    said = capsys.readouterr().out
    assert heats == [0.0] and f"answer: {answer}" in said
    assert [tone for tone in (GREEN, RED) if tone in said] == ([colour] if colour else [])
    assert ("teku" in said.replace(f"answer: {answer}", "")) == gold


def test_the_example_of_the_page_has_the_worlds_own_answers() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    given = [json.loads(line) for line in page.splitlines() if line.startswith('{"question"')]
    assert len(given) == 2 and [HELDOUT.answer(row["question"]) for row in given] == [row["answer"] for row in given]
