"""The shape of the repository: who imports what, sizes, docstrings, packaging, scripts."""

from __future__ import annotations

import ast
import configparser
import gc
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ssp.base.published import PUBLISHED

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("ssp", "actors", "launch")
ARTEFACT = ROOT / "ssp" / "learning" / "coldstart" / "artefact"  # a model folder, whose tokenizer comes with its class
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.parent != ARTEFACT)
SCRIPTS = [*sorted((ROOT / "launch").glob("*.sh")), ROOT / ".ci" / "run"]
FILE_LINES, FUNCTION_LINES = 400, 60
"""Nobody raises these."""
SOMEBODYS_MACHINE = re.compile(r"/(home|Users|root|work)/\w")

DOORS = {"ssp/base/printable.py", "ssp/telemetry/terminal.py"}
PIPES = {"ssp/game/rewards/maths_child.py", "launch/nodes/raynode.py", "actors/process.py"}
"""Children that print to a pipe, which their parent reads."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def imports(path: Path) -> Iterator[str]:
    """Top-level names of everything that a file imports, at any depth of nesting."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


def every_file() -> list[Path]:
    """Files of the repository, those that are new in the working tree too; without git, the sources of the rooms."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [ROOT / name for name in done.stdout.splitlines()] if done.returncode == 0 else FILES
    return [path for path in found if path.is_file()]


def tracked() -> list[Path]:
    return [path for path in every_file() if path.suffix not in (".safetensors", ".png", ".gz", ".pt")]


def test_ssp_does_not_know_ray() -> None:
    assert [named(path) for path in FILES if named(path).startswith("ssp/") and "ray" in imports(path)] == []


def test_files_and_functions_are_short() -> None:
    assert [named(path) for path in FILES if lines(path) >= FILE_LINES] == []
    long = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, Function) and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
    ]
    assert long == []


def test_every_module_and_every_public_name_has_a_docstring() -> None:
    missing = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not ast.get_docstring(tree):
            missing.append(named(path))
        missing += [f"{named(path)}: {name}" for name, node in public(tree, "") if not ast.get_docstring(node)]
    assert missing == []


def public(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Public names; a body of `...` is a field of an interface, which its class describes."""
    for node in tree.body:
        stub = isinstance(node, Function) and ast.unparse(node.body[-1]) == "..."
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_") and not stub:
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node, f"{prefix}{node.name}.")


def doors(tree: ast.Module) -> Iterator[str]:
    """Calls that reach a terminal by themselves, and calls of rich that read markup."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        said = ast.unparse(node.func)
        if said in ("print", "Console", "RichConsole", "Progress", "rich.print", "Text.from_markup", "Live", "input"):
            prompts = said == "input" and all("{" not in ast.unparse(arg) for arg in node.args)
            ours = any(
                ast.unparse(key.value) in ("self._rich", "console") for key in node.keywords if key.arg == "console"
            )
            if not prompts and not ours and not (said == "Console" and not node.args and not node.keywords):
                yield said
        if said in ("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "sys.__stdout__.write"):
            yield said
        if said == "TextColumn" and "markup=False" not in ast.unparse(node):
            yield said


def test_nothing_but_the_doors_prints() -> None:
    """What reaches a terminal goes through `printable`, and nothing from outside is read as markup."""
    found = {named(path): list(doors(ast.parse(path.read_text(encoding="utf-8")))) for path in FILES}
    assert {name: said for name, said in found.items() if said and name not in DOORS | PIPES} == {}


def test_no_path_of_somebodys_machine() -> None:
    found = [named(p) for p in tracked() if SOMEBODYS_MACHINE.search(p.read_text(encoding="utf-8", errors="replace"))]
    assert found == []


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_scripts_are_strict_and_executable(path: Path) -> None:
    assert "\nset -euo pipefail\n" in path.read_text(encoding="utf-8")
    assert path.name == "setup.sh" or os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)


def setup_cfg() -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser()
    parsed.read(ROOT / "setup.cfg", encoding="utf-8")
    return parsed


def test_every_package_is_installed() -> None:
    listed = set(setup_cfg()["options"]["packages"].split())
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in FILES}
    assert listed == there | {"ssp.configs"}


def test_the_scripts_install_what_is_pinned() -> None:
    script = (ROOT / "launch" / "setup.sh").read_text(encoding="utf-8")
    parsed = setup_cfg()
    extras = parsed["options.extras_require"]
    pins = {name: line for name in extras for line in extras[name].splitlines() if line.startswith("torch")}
    assert set(pins) == {"gpu", "vllm-cpu"} and len(set(pins.values())) == 1, "where vLLM asks for it, and nowhere else"
    assert f'ssp_torch="{pins["gpu"]}"' in script
    needed = {one.name: one for one in map(Requirement, parsed["options"]["install_requires"].split())}
    assert needed["torch"].specifier.contains(pins["gpu"].removeprefix("torch=="))
    bare = re.findall(r"^ssp_bare=\((.*)\)$", script, re.MULTILINE)
    assert re.findall(r"--no-deps: (.*)$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE) == bare
    model = PUBLISHED["smollm2-135m"]
    assert f"{model.repo}=={model.revision}" in bare[0].split()
    assert {*extras["english"].split()} <= {*extras["test"].split()}, "tests read these packages"


def test_the_scripts_take_the_pythons_that_are_named() -> None:
    parsed = setup_cfg()
    named = re.findall(r":: (3\.\d+)", parsed["metadata"]["classifiers"])
    allowed = SpecifierSet(parsed["options"]["python_requires"])
    assert named == [one for one in (f"3.{minor}" for minor in range(30)) if one in allowed]
    first, last = (one.replace(".", ", ") for one in (named[0], named[-1]))
    asked = f"not ({first}) <= sys.version_info[:2] <= ({last})"
    assert (ROOT / "launch" / "setup.sh").read_text(encoding="utf-8").count(asked) == 2


def test_pyproject_names_the_build_backend_and_nothing_else() -> None:
    assert lines(ROOT / "pyproject.toml") == 3


@pytest.mark.ray
def test_a_wheel_runs_a_dry_run_from_any_folder(tmp_path: Path) -> None:
    """Built and installed without this repository on the path: packages, configs and the cold start travel along."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(copied(tmp_path / "source"))], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in inside if ".dist-info" not in name} == set(ROOMS)
    wanted = [f"ssp/configs/{p.name}" for p in every_file() if p.parent == ROOT / "configs"]
    wanted += [named(p) for p in every_file() if p.is_relative_to(ROOT / "ssp")]
    assert set(wanted) - set(inside) == set()

    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    program = "import sys, launch.main as m; assert sys.argv.pop(1) in m.__file__; sys.exit(m.main())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(site), "train", "--config", "quickstart", "--dry-run", "steps=3"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "steps: 3" in done.stdout


def copied(to: Path) -> Path:
    """The repository's files without build products, so that building leaves nothing behind here."""
    for path in every_file():
        target = to / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return to


def test_no_two_test_files_have_one_name() -> None:
    """Folders of tests are no packages: of two files of one name pytest collects the first."""
    names = Counter(
        path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("conftest.py", "__init__.py")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_garbage_is_collected_within_a_test() -> None:
    """`pytest_runtest_call` in conftest.py says why."""
    assert not gc.isenabled()
