"""`ssp migrate` of a script that evaluates, or whose values stand elsewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from launch import eval as evaluate
from launch import migrate
from launch.main import main
from ssp.base.errors import InputError

EVALUATES = """export BASE_MODEL={model}
python3 -m verl.trainer.main_ppo data.train_files=$DATA_DIR/train.parquet data.val_files={data} \\
    data.max_start_length=2048 actor_rollout_ref.model.path=$BASE_MODEL +trainer.val_only={only} \\
    max_turns=4 retriever.url="http://127.0.0.1:1/retrieve" 2>&1 | tee $LOG
"""


@pytest.mark.parametrize("only", ["true", "True"])
def test_a_script_that_only_evaluates_becomes_no_training(tmp_path: Path, only: str) -> None:
    run, out = tmp_path / "evaluate.sh", tmp_path / "mine.yaml"
    run.write_text(EVALUATES.format(model=tmp_path / "none", data=tmp_path / "nq.jsonl", only=only))
    with pytest.raises(InputError) as refused:
        migrate.main([str(run), "--out", str(out)])
    assert not out.exists() and refused.value.found == "trainer.val_only=true"
    line = re.search("`(.*)`", refused.value.next_step)
    assert line is not None
    words = shlex.split(line[1])
    assert words[:2] == ["ssp", "eval"] and str(tmp_path / "nq.jsonl") in words
    assert {f"solver.model={tmp_path}/none", "solver.limits.searches=4"} <= set(words)
    with pytest.raises(InputError, match="nq.jsonl"):  # the line is understood: what lacks is the data of this example
        evaluate.main(words[2:])


def test_a_value_that_a_script_does_not_have_is_no_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "train.sh"
    run.write_text(EVALUATES.format(model="m", data="$VAL", only="false"))
    assert main(["migrate", str(run)]) == 0
    printed = capsys.readouterr().out
    absent = len(re.findall(r"=\?  ->", printed))
    *_, counts, mine = printed.splitlines()
    set_here, reasons, untold, unknown = map(int, re.findall(r"\d+(?= (?:set|with|unknown))", counts))
    assert absent == untold == 2
    assert set_here + reasons + untold + unknown == int(counts.split()[0])
    assert mine == "2 keys need you: data.train_files, data.val_files"


def test_a_script_of_verls_own_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algorithm.adv_estimator=grpo", "trainer.total_epochs=15", "actor_rollout_ref.rollout.of_mine=1"]
    assert main(["migrate", *words]) == 0
    printed = capsys.readouterr().out
    assert "verl's own script" in printed
    assert printed.endswith("\n2 keys need you: trainer.total_epochs, actor_rollout_ref.rollout.of_mine\n")
    assert main(["migrate", *words[:1], "max_turns=3"]) == 0
    printed = capsys.readouterr().out
    assert "verl's own" not in printed and printed.endswith("\n0 keys need you\n")
