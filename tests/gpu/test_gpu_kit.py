"""The kit for a GPU, on a CPU."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import kit
import pack
import pytest

SCRIPT = Path(__file__).with_name("kit.py")


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """What pack.py writes, in parts of 900 bytes: a wheel with a program and a data folder, and a model's file."""
    wheel, whole = io.BytesIO(), tmp_path / "whole.tar.xz"
    with zipfile.ZipFile(wheel, "w") as packed:
        program = zipfile.ZipInfo("made/run.sh")
        program.external_attr = 0o100755 << 16
        packed.writestr(program, "#!/bin/sh\necho ran\n")
        packed.writestr("made-1.data/purelib/made/more.py", "MORE = 1\n")
        packed.writestr("made-1.data/scripts/made", "none")
        packed.writestr("made-1.dist-info/METADATA", os.urandom(1500).hex())
    with tarfile.open(whole, "w:xz") as tar:
        for name, data in (("wheels/made-1-py3-none-any.whl", wheel.getvalue()), ("cache/hub/m/config.json", b"{}")):
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
    (tmp_path / "given").mkdir()
    made = pack.cut(whole, tmp_path / "given", 900)
    assert len(made) >= 3 and b"".join(part.read_bytes() for part in made) == whole.read_bytes()
    return made


def test_deepspeed_comes_without_torch(tmp_path: Path) -> None:
    needs, alone = pack.asked()
    assert alone[0].startswith("deepspeed") and not [name for name in needs if name.startswith(("torch", "peft"))]
    wheel = tmp_path / "deepspeed-1-py3-none-any.whl"
    told = "Name: deepspeed\nRequires-Dist: hjson\nRequires-Dist: py-cpuinfo>=9 ; python_version > '3'\n"
    told += 'Requires-Dist: torch>=2.0.0\nRequires-Dist: numpy\nRequires-Dist: scipy; extra == "all"\n'
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("deepspeed-1.dist-info/METADATA", told)
    assert pack.needs_of(wheel) == ["hjson", "py-cpuinfo>=9 ; python_version > '3'"]


def test_a_packed_library_is_there_once_it_is_unpacked(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit.importlib.util, "find_spec", lambda name: None)
    made, out = kit.Kit(tmp_path / "kit", False, time.monotonic() + 900), tmp_path / "out"
    zero = next(step for step in kit.STEPS if step.name == "zero-1")
    made.take(parts[0].parent)
    assert made._lacks(zero) and not made.do(zero, out) and not made.rows(), "it waits for what is packed"
    assert made.do(kit.STEPS[0], out) and made._lacks(zero) == "deepspeed is not installed"
    (made.folder / "unpacked" / "site" / "deepspeed").mkdir()
    assert made._lacks(zero) == ""


def test_parts_come_one_by_one_and_a_damaged_one_again(parts: list[Path], tmp_path: Path) -> None:
    made, out = kit.Kit(tmp_path / "kit", False, time.monotonic() + 900), tmp_path / "out"
    unpack, greedy = kit.STEPS[0], kit.STEPS[2]
    for part in parts:
        assert not made.rows()
        single = tmp_path / f"call{part.name[:8]}"
        single.mkdir()
        (single / part.name).write_bytes(part.read_bytes() if part != parts[1] else b"torn")
        made.take(single)
        assert not made.do(unpack, out)
    assert made.rows()[0]["damaged"] == parts[1].name[:12]
    assert not made.do(unpack, out) and not made.do(greedy, out)  # which wait for it
    made.take(parts[1].parent)
    assert made.do(unpack, out) and made.rows()[0]["wheels"] == 1
    site = made.folder / "unpacked" / "site"
    assert subprocess.run([site / "made" / "run.sh"], capture_output=True, check=True).stdout == b"ran\n"
    assert list((site / "made" / "__pycache__").glob("more.*.pyc")) and not (site / "made-1.data").exists()
    assert made._environment()["SSP_CACHE"] == str(made.folder / "unpacked" / "cache")


def test_a_step_that_fails_or_dies_is_a_row_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program"
    program.write_text(
        '#!/bin/sh\ncase "$3" in machine) echo "what is wrong"; exit 7;; greedy) sleep 60;; engine) echo \'ROW {"speed": 1.23456}\';;\n'
        ' english) echo \'ROW {"seconds_so_far": 50, "unfinished": true}\';; *) echo \'ROW {"missed": ["MFU"]}\';; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(kit.sys, "executable", str(program))
    steps = {step.name: step for step in kit.STEPS}
    out, made = tmp_path / "out", kit.Kit(tmp_path / "kit", True, time.monotonic() + 100)
    monkeypatch.setattr(kit, "SPARE", 0.0)
    for name in ("machine", "engine", "english", "learner-3B"):
        assert made.do(steps[name], out) is (name not in ("english", "learner-3B")), "150 seconds are not left"
    assert made.do(steps["greedy"]._replace(seconds=1), out)
    (made.folder / "tries" / "learner-0.5B").write_text("4")  # killed with the kit itself
    assert made.do(steps["learner-0.5B"], out) and made.do(steps["learner-3B"]._replace(seconds=9), out)
    rows = {row["step"]: row for row in json.loads((out / "rows.json").read_text())}
    assert rows["machine"] == {"step": "machine", "failed": "exit code 7: what is wrong"}
    assert rows["greedy"]["failed"].startswith("not done within 1 s") and "4 times" in rows["learner-0.5B"]["failed"]
    text = (out / "table.txt").read_text()
    assert "speed 1.235" in text and "MFU" in text and "unfinished seconds_so_far 50" in text
    assert (out / "machine.log").read_text() == "what is wrong\n"
    assert made.do(steps["machine"], out)  # once only
    assert (made.folder / "logs" / "machine.log").read_text() == "what is wrong\n"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_small_form_runs_every_kind_of_step(tmp_path: Path) -> None:
    """vllm is left out: it has a suite of its own, and takes half a minute to start."""
    wanted = ["machine", "greedy", "engine", "english", "english-after", "learner-3B", "object_store", "zero-3"]
    command = [sys.executable, str(SCRIPT), "--cpu", "--minutes", "60", "--folder", str(tmp_path), "--steps", *wanted]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["step"]: row for row in json.loads((tmp_path / "out" / "rows.json").read_text())}
    assert list(rows) == wanted
    assert rows["greedy"]["same_float32"] == 4 and rows["greedy"]["transformers_apart"] < 1e-3
    assert rows["english"]["steps"] == 2 and rows["english-after"]["em_heldout"] == 0.0
    assert rows["engine"]["tokens_per_second_4"] > 0 and 0 < rows["learner-3B"]["mfu"] < 2
    assert rows["zero-3"]["cosine"] > 0.999 and rows["object_store"]["bound"] > 0
