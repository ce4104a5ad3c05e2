"""The console script: dispatch, exit codes, one paragraph for bad input; the shared parser; the dry run."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from actors.program import needed_cpus
from launch import main as console
from launch import train
from launch.cli import Parser, parse
from launch.shown.dryrun import describe
from ssp.base.errors import Fault, InputError, InvariantError
from ssp.capacity.memory import processes
from ssp.config.keys import all_keys
from ssp.config.load import names, to_yaml
from ssp.selfplay.settings import load


def raising(error: BaseException) -> Callable[[Sequence[str]], int]:
    def command(argv: Sequence[str]) -> int:
        raise error

    return command


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(argv) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name}" in shown for name in console.COMMANDS)


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["trian"]) == 2
    shown = capsys.readouterr()
    assert "did you mean ssp train" in shown.err and shown.out == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("the rule", "the value", "do this"), 2, "ssp: the rule. Found: the value. Next: do this."),
        (Fault("retriever_down", "shard 1"), 1, "ssp: Fault: retriever_down: shard 1"),
        (KeyboardInterrupt(), 130, "ssp: interrupted"),
    ],
)
def test_failures_become_one_paragraph_and_an_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console.run(raising(error), []) == code
    assert capsys.readouterr().err == said + "\n"


@pytest.mark.parametrize(
    "error", [InvariantError("created != sum"), ZeroDivisionError("a\nb\x1b[2J"), OSError(71, "x")]
)
def test_a_bug_is_exit_1_and_its_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(raising(error), []) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown and type(error).__name__ in shown and "\x1b" not in shown


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        sqlite3.OperationalError("disk is full"),
        RuntimeError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        ),  # as safetensors has it
    ],
)
def test_a_full_disk_is_one_paragraph(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    later = OSError("while closing")
    later.__context__ = error
    assert console.run(raising(later), []) == 2
    assert "resume=auto" in capsys.readouterr().err


def flags(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--port", type=int, default=0)


def test_settings_and_options_mix() -> None:
    parsed = parse(["steps=3", "--dry-run", "seed=1", "--port", "5", "--config", "a.yaml"], "train", "", flags)
    assert (parsed.config, parsed.overrides) == ("a.yaml", ["steps=3", "seed=1"])
    assert (parsed.flags.dry_run, parsed.flags.port) == (True, 5)


@pytest.mark.parametrize("argv", [["--no-such"], ["--port", "x"], ["--conf", "a"], ["--steps=3"]])
def test_wrong_arguments_are_bad_input(argv: list[str]) -> None:
    with pytest.raises(InputError, match="--help"):
        parse(argv, "train", "", flags)


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["--learning_rate", "1e-6"], "proposer.learner.lr=VALUE or solver.learner.lr=VALUE"),
        (["--batch-size=4"], "proposer.batch=VALUE or solver.batch=VALUE"),
        (["--steps=3"], "steps=VALUE"),
    ],
)
def test_a_setting_that_is_typed_as_an_option_is_named(argv: list[str], meant: str) -> None:
    with pytest.raises(InputError, match=f"without dashes, {re.escape(meant)};"):
        parse(argv, "train", "", flags)


def test_the_help_of_train_has_examples_every_config_and_keys_that_exist() -> None:
    examples, shipped, keys = train.ABOUT.split("\n\n")
    assert len(re.findall("^  ssp train", examples, re.MULTILINE)) == 4
    assert set(names()) <= set(shipped.split())
    listed = [word for line in keys.splitlines()[1:] for word in line[18:].split()]
    assert listed and set(listed) <= set(all_keys(("proposer", "solver")))


def test_the_dry_run_shows_config_actors_placement_and_memory() -> None:
    cfg = load("quickstart", ["retriever.replicas=2", "retriever.shards=3", "proposer.policy=frozen"])
    text = "".join(describe(cfg))
    assert text.startswith("# Actors"), "tables first: the configuration is 200 lines"
    assert to_yaml(cfg) in text and re.search(r"retriever +6 ", text)
    assert "learner-solver" in text and "learner-proposer" in text
    assert "total" in text.split("# Memory")[1] and "Every process computes on CPUs" in text.split("# Placement")[1]
    assert needed_cpus(cfg) == pytest.approx(sum(part.count * part.cpus for part in processes(cfg)))
    given = processes(load("quickstart", ["game.questions=dataset", "data.questions=world:train"]))
    duel = processes(load("quickstart"))
    assert {part.name for part in duel} - {part.name for part in given} == {"proposer", "learner-proposer"}


def test_the_default_duel_is_planned_where_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The README promises 4 GB, and 3.6 GB that are free."""
    assert console.main(["train", "--dry-run", "placement.nodes=1x0x0x4"]) == 0
    assert console.main(["train", "--dry-run", "placement.nodes=1x0x0x3.6"]) == 0
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code"), [(["train", "--dry-run"], 0), (["train", "stepz=3"], 2), (["train", "--dry-run", "steps=0"], 2)]
)
def test_the_console_script_as_a_process(argv: list[str], code: int) -> None:
    """Neither a dry run nor bad input pays for importing Ray or torch."""
    program = (
        "import sys; from launch.main import main; code = main(sys.argv[1:]); "
        "assert not {'ray', 'torch', 'transformers'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert (done.stdout == "") == (code == 2)
    assert len(done.stderr.splitlines()) == (1 if code == 2 else 0)


HEAVY = "torch transformers ray vllm deepspeed pyarrow httpx openai faiss rich.progress scipy".split()


def test_help_imports_nothing_heavy() -> None:
    """Neither what computes nor what a command reads and asks with is loaded before it is needed."""
    program = (
        "import contextlib, sys\nfrom launch.main import main\nfor command in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit):\n        main([command, '--help'])\n"
        f"    print('loaded', command, sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *console.COMMANDS], capture_output=True, text=True, timeout=200
    )
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded ")]
    assert done.returncode == 0 and loaded == [f"loaded {command} []" for command in console.COMMANDS], done.stderr


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_used_is_bad_input(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(raising(OSError(code, os.strerror(code), "a/path")), []) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("ssp: ") and "a/path" in shown and shown.count("\n") == 1
    assert console.run(raising(OSError(code, "of no path")), []) == 1


def test_a_reader_that_leaves_is_no_failure_of_ours() -> None:
    """`ssp ... | head`: no traceback, whether the pipe breaks while the command prints or after it."""
    for lines in (2, 100_000):
        code = f"from launch.main import run; raise SystemExit(run(lambda argv: print('x\\n' * {lines}), []))"
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == "" and child.wait() == 1
        child.stderr.close()
