"""Every example of docs/own.md, taken from the page and run: real commands, `ssp train` in this one process."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import inprocess
import numpy as np
import pyarrow.parquet as pq
import pytest
from docpages import ROOT, Block, blocks
from safetensors.numpy import load_file
from trainruns import POLICY, Left, Run

from launch import main as program
from launch import train
from ssp.config import own

SMALL = {
    "quickstart": (
        "proposer.batch=8 solver.batch=8 game.attempts=4 retriever.shards=1 eval.every=0 data.eval=[]".split()
        + [f"defaults.model={POLICY}"]
    ),
    "search-r1-qwen2.5-3b-grpo": (
        "solver.batch=3 game.attempts=2 data.eval=[] solver.limits.searches=1 solver.limits.turn_tokens=64".split()
    ),
}
"""What makes a block's run still smaller here, by its config; what the page types comes later and wins."""
EXAMPLES = {block.heading: block for block in blocks(ROOT / "docs" / "own.md", "bash")}


def run(block: Block) -> None:
    """The block's files and commands, in the working folder."""
    for name, text in block.files.items():
        Path(name).write_text(text, encoding="utf-8")
    for words in block.commands:
        if words[0] == "python":
            runpy.run_path(words[1])
        else:
            assert words[0] == "ssp", words
            small = SMALL[words[3]] if words[1] == "train" else []
            assert program.main([words[1], *small, *words[2:]]) == 0, words


@pytest.fixture(autouse=True)
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and nothing set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSP_HOME", raising=False)
    monkeypatch.setattr(train, "train", lambda cfg, name: inprocess.play(cfg, name) and 0)
    return tmp_path


def checkpoint(name: str, role: str = "solver") -> tuple[Path, dict[str, Any]]:
    run_ = Path("runs", name).absolute()
    state = json.loads((run_ / "checkpoints" / "state.json").read_text())
    assert state["step"] == 2
    folder = run_ / state["folders"][role]
    return folder, json.loads((folder / "ssp.json").read_text())


def weights_changed(before: Path, after: Path) -> bool:
    one, other = (load_file(folder / "model.safetensors") for folder in (before, after))
    return any(not np.array_equal(one[name], other[name]) for name in one)


def texts(name: str) -> list[str]:
    return [
        text
        for file in Path("runs", name, "episodes").glob("*.parquet")
        for text in pq.read_table(file)["text"].to_pylist()
    ]


def test_each_of_the_five_has_one_example_of_a_readable_size() -> None:
    assert list(EXAMPLES) == ["Corpus", "Model", "Protocol", "Reward", "Algorithm"]
    assert all(10 <= block.text.count("\n") <= 35 for block in EXAMPLES.values())


def test_a_corpus(capfd: pytest.CaptureFixture[str]) -> None:
    run(EXAMPLES["Corpus"])
    said = capfd.readouterr().out
    assert "answer: furi (2 searches)" in said  # which stands in no world of ours under this name
    assert any("rota birthplace nuvo" in text for text in texts("own-corpus"))
    checkpoint("own-corpus")


def test_a_model() -> None:
    run(EXAMPLES["Model"])
    folder, _ = checkpoint("own-model")
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    assert weights_changed(Path("my-model"), folder)


def test_a_protocol(capfd: pytest.CaptureFixture[str]) -> None:
    run(EXAMPLES["Protocol"])
    _, record = checkpoint("own-protocol")
    assert (record["protocol"], record["protocol_version"]) == ("my-calls", 1)
    assert any('<call> search("' in text and "<found>\n[1] " in text for text in texts("own-protocol"))
    capfd.readouterr()
    assert program.main(["ask", "who ?", "--policy", "runs/own-protocol", "protocol=search-r1"]) == 2
    assert "is of protocol my-calls" in capfd.readouterr().err


def test_a_reward_of_each_role() -> None:
    run(EXAMPLES["Reward"])
    left = Left(Path("runs", "own-reward"))
    even = own.find("my_reward.py:even", "", "")
    paid = left.sql(
        "SELECT e.reward, g.win_rate FROM episodes e JOIN games g ON g.id = e.game_id "
        "WHERE e.role = 'proposer' AND e.outcome = 'scored' AND e.reward IS NOT NULL"
    )
    assert paid
    assert all(any(reward == pytest.approx(even(rate, n, price=0.2)) for n in range(1, 6)) for reward, rate in paid)
    solved = [
        reward for (reward,) in left.sql("SELECT reward FROM episodes WHERE role = 'solver' AND outcome = 'scored'")
    ]
    assert len(set(solved)) > 2 and max(solved) > 1.0
    _, record = checkpoint("own-reward", "proposer")
    assert record["own"].keys() == {"solver.reward", "proposer.reward"}
    assert record["own"]["proposer.reward"].startswith("my_reward.py:even ")
    left, plain = Left(Path("runs", "own-turns")), own.find("my_reward.py:plain", "", "")
    priced = left.sql(
        "SELECT e.reward, g.win_rate, g.question FROM episodes e JOIN games g ON g.id = e.game_id "
        "WHERE e.role = 'proposer' AND e.outcome = 'scored' AND e.reward IS NOT NULL"
    )
    assert priced and all(earned == pytest.approx(plain(text) * (1 - rate)) for earned, rate, text in priced)
    tenths = {
        round(10 * earned) for (earned,) in left.sql("SELECT reward FROM episodes WHERE role = 'solver'") if earned
    }
    assert max(tenths) >= 13 and all(any((one - 3 * n) in (0, 10) for n in range(6)) for one in tenths)
    folder, record = checkpoint("own-turns")
    assert record["own"].keys() == {"solver.reward", "proposer.reward_options.guide"} and weights_changed(
        POLICY, folder
    )


def test_the_page_of_agents_trains_in_small(newcomer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tool, its server and its agent, as the page has them, by the commands that it types."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # an activated .venv
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    for name in ("my_tools.py", "my_server.py", "my_agent.py"):
        Path(name).write_text(page.partition(f"```python\n# {name}\n")[2].partition("```")[0], encoding="utf-8")
    typed = [line.partition("  ")[0] for line in page.splitlines() if line.startswith("ssp train") and "--tiny" in line]
    small = ["solver.batch=2", "game.attempts=2", "data.eval=[]", "eval.every=0", "steps=1"]
    assert len(typed) == 3
    for number, line in enumerate(typed):
        assert program.main([*shlex.split(line)[1:], *small, f"run.name=agents-{number}"]) == 0
        outcomes = {
            outcome for (outcome,) in Left(Path("runs", f"agents-{number}")).sql("SELECT outcome FROM episodes")
        }
        assert outcomes and "void" not in outcomes, line


def test_an_algorithm() -> None:
    run(EXAMPLES["Algorithm"])
    folder, record = checkpoint("own-algorithm")
    assert record["algorithm"]["solver"]["name"] == "my_algorithm.py:Median"
    assert record["own"].keys() == {"solver.algorithm", "solver.loss", "solver.kl.kind"}
    assert weights_changed(POLICY, folder)


@pytest.mark.nightly  # in CI: each alone in one process, above, and a file's game on Ray in test_declared_on_ray.py
def test_own_files_reach_the_workers(newcomer: Path) -> None:
    """Reward, estimator, loss, KL and protocol from files beside the user, on real Ray."""
    for name in ("Protocol", "Reward", "Algorithm"):
        for file, text in EXAMPLES[name].files.items():
            (newcomer / file).write_text(text, encoding="utf-8")
    code = ["solver.reward=my_reward.py:brief", "solver.algorithm=my_algorithm.py:Median"]
    code += ["solver.loss=my_algorithm.py:smooth", "solver.kl.kind=my_algorithm.py:capped"]
    started = Run(
        newcomer / "own-ray",
        "protocol=my-protocol.yaml",
        *code,
        "solver.kl.coef=0.001",
        "ray.dashboard=-1",
        recipe="search-r1-qwen2.5-3b-grpo",
    )
    started.ends_well()
    state = json.loads((started.folder / "checkpoints" / "state.json").read_text())
    record = json.loads((started.folder / state["folders"]["solver"] / "ssp.json").read_text())
    assert (record["protocol"], record["algorithm"]["solver"]["name"]) == ("my-calls", "my_algorithm.py:Median")
    assert set(record["own"]) == {"protocol", *(text.partition("=")[0] for text in code)}
    rewards = {reward for (reward,) in started.sql("SELECT reward FROM episodes WHERE outcome = 'scored'")}
    assert len(rewards) > 2
