"""The core works without `ssp/extras`, and says what is missing; nothing of the core imports it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ssp.base.errors import InputError
from ssp.base.extras import extra, there
from tests.test_house import GRAPH, MODULES, wing

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = "ssp/extras"
NEEDS = {"ssp.engines.vllm.worker": "vllm"}
"""Module → the package that it cannot be imported without."""

ASKED = {
    "english": ["train", "--config", "english", "--dry-run"],
    "warmup": ["warmup", "warmup.data=world:fanoutqa", "--out", "taught"],
    "online": ["train", "--dry-run", "retriever.online.engine=serper"],
    "migration": ["migrate", "max_turns=4"],
    "baselines": ["eval", "--method", "rag"],
    "policyserver": ["serve", "--policy", "run"],
    "league": ["train", "--dry-run", "league.match=mix"],
    "yardstick": ["bank", "run", "--yardstick", "1"],
}
"""What is typed → what has to be refused where it is not there."""

PROGRAM = """
import contextlib, importlib, importlib.util, io, json, sys
from pathlib import Path
from launch.main import main
from tests.board.boarded import played

modules, needs, asked = json.loads(sys.argv[1])
for name in modules:
    if importlib.util.find_spec(needs.get(name, "json")):
        importlib.import_module(name)
stage = played(Path("run"), steps=2)
told = {}
for name, argv in asked.items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        told[name] = [main(argv), said.getvalue()]
with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
    shown = main(["train", "--dry-run"]), main(["board", "run", "--save", "board.html"])
states = {name: dict(counts) for name, counts in stage.settled().items()}
extras = sorted(name for name in sys.modules if name.startswith("ssp.extras"))
print(json.dumps({"told": told, "states": states, "extras": extras, "shown": shown}))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the tree without `ssp/extras` does: it imports every module, plays, and is asked for extras."""
    core = tmp_path_factory.mktemp("core")
    for room in ("ssp", "actors", "launch", "configs"):
        shutil.copytree(ROOT / room, core / room, ignore=shutil.ignore_patterns("extras", "__pycache__"))
    shutil.copytree(ROOT / "tests", core / "tests", ignore=shutil.ignore_patterns("bench", "extras", "__pycache__"))
    # bytecode that is left where an extra was is none
    (core / "ssp" / "extras" / "english" / "__pycache__").mkdir(parents=True)
    modules = sorted(name for name in MODULES if wing(name) != EXTRAS and not name.endswith("__main__"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([modules, NEEDS, ASKED])],
        cwd=core,
        env={**os.environ, "PYTHONPATH": str(core)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_nothing_of_the_core_imports_an_extra() -> None:
    imports = {module: {other for other in others if wing(other) == EXTRAS} for module, others in GRAPH.items()}
    assert [module for module, others in imports.items() if others and wing(module) != EXTRAS] == []


@pytest.mark.slow
def test_the_core_plays_without_them(alone: dict[str, Any]) -> None:
    assert alone["states"]["solver"]["trained"] and alone["states"]["eval"]["kept"]
    assert alone["shown"] == [0, 0] and alone["extras"] == ["ssp.extras"][: len(alone["extras"])]


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_what_names_one_is_refused_in_a_paragraph(name: str, alone: dict[str, Any]) -> None:
    code, said = alone["told"][name]
    assert code == 2 and "Traceback" not in said
    assert "stands beside the core" in said and "not installed" in said
    assert f"{EXTRAS}/{'english' if name == 'warmup' else name}" in said


def test_every_extra_that_is_asked_for_exists() -> None:
    asked: set[str] = set()
    for module, path in MODULES.items():
        if wing(module) != EXTRAS:
            asked |= set(re.findall(r'\b(?:extra|require|there)\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    assert asked == set(ASKED) - {"english", "warmup"} and all(map(there, ASKED.keys() - {"warmup"}))
    assert not there("elsewhere")
    with pytest.raises(InputError, match=r"mine needs ssp/extras/elsewhere.*not installed"):
        extra("elsewhere", "mine")
