"""The console script: dispatch, exit codes, one paragraph for bad input; the shared parser; the dry run."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch import main as console
from launch.checks.dryrun import describe
from launch.cli import Parser, parse
from ssp import __version__
from ssp.base.errors import Fault, InputError, InvariantError
from ssp.capacity.memory import processes
from ssp.capacity.memory.processes import BASE_MB
from ssp.capacity.placement import machine, make, short
from ssp.config.load import to_yaml
from ssp.search.index.builder import IndexPlan, build_index
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


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ssp {__version__}\n"


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["trian"]) == 2
    shown = capsys.readouterr()
    assert "did you mean ssp train" in shown.err and shown.out == ""


def test_dispatch_passes_the_rest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Sequence[str]] = []
    module = SimpleNamespace(main=lambda argv: seen.append(argv) or 7)
    monkeypatch.setitem(sys.modules, "launch.train", module)
    assert console.main(["train", "--dry-run", "steps=3"]) == 7
    assert seen == [["--dry-run", "steps=3"]]


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
    "error", [InvariantError("created != sum"), ZeroDivisionError("a\nb\x1b[2J"), RecursionError()]
)
def test_a_bug_is_exit_1_one_line_and_a_file_with_its_traceback(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert console.run(raising(error), []) == 1
    (kept,) = tmp_path.iterdir()
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "\x1b" not in shown and type(error).__name__ in shown and str(kept) in shown
    assert kept.read_text().startswith("Traceback") and f"{error}" in kept.read_text()


def test_a_bug_shows_its_traceback_where_no_file_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert console.run(raising(ZeroDivisionError("\x1b[2J")), []) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown and "\\x1b[2J" in shown and "\x1b" not in shown


def test_on_a_terminal_the_paragraph_is_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    console.run(raising(InputError("a rule " * 10, "x" * 60, "y")), [])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2 and all(len(line) <= 40 or "x" * 60 in line for line in lines)


def flags(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--port", type=int, default=0)


def test_settings_and_options_mix() -> None:
    parsed = parse(["steps=3", "--dry-run", "seed=1", "--port", "5", "--config", "a.yaml"], "train", "", flags)
    assert (parsed.config, parsed.overrides) == ("a.yaml", ["steps=3", "seed=1"])
    assert (parsed.flags.dry_run, parsed.flags.port) == (True, 5)


def test_the_default_config_is_the_quickstart() -> None:
    assert parse([], "train", "").load() == load("quickstart")


@pytest.mark.parametrize("argv", [["--no-such"], ["--port", "x"], ["--conf", "a"], ["--steps=3"]])
def test_wrong_arguments_are_bad_input(argv: list[str]) -> None:
    with pytest.raises(InputError, match="--help"):
        parse(argv, "train", "", flags)


def test_the_dry_run_shows_config_graph_resources_and_memory() -> None:
    cfg = load("quickstart", ["game.attempts=4", "placement.solvers=3", "proposer.policy=frozen"])
    text = "".join(describe(cfg))
    assert to_yaml(cfg) in text
    assert "solver x3" in text and "4 attempts a question" in text and "kept: the policy is frozen" in text
    assert "updates the solver's policy" in text and "holds the frozen policy" in text
    assert "total" in text.split("# Memory")[1] and "Every process computes on CPUs" in text.split("# Placement")[1]


def test_the_dry_run_counts_replicas_encoders_and_what_they_load(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes(b" " * 2**20)
    few = ["retriever.shards=3", f"data.corpus={corpus}"]
    plain = {part.name: part for part in processes(load("quickstart", few))}
    cfg = load("quickstart", [*few, "retriever.replicas=2", "retriever.encoders=2", f"retriever.reranker={tmp_path}"])
    parts = {part.name: part for part in processes(cfg)}
    assert plain["retriever"].count == 3 and "encoder" not in plain
    assert parts["retriever"].count == 6 and parts["encoder"].count == 2
    assert parts["retriever"].megabytes == plain["retriever"].megabytes == BASE_MB["search"] + 7.5
    assert "retriever x3 x2" in "".join(describe(cfg))
    from actors.program import needed_cpus

    assert needed_cpus(cfg) == pytest.approx(sum(part.count * part.cpus for part in parts.values()))


def test_the_dry_run_counts_the_arrays_of_an_index_folder(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"id": "{i}", "contents": "word{i} town"}}\n' for i in range(2000)))
    build_index(corpus, tmp_path / "index", IndexPlan())

    def arrays(shards: int) -> float:
        cfg = load("quickstart", [f"retriever.shards={shards}", f"data.corpus={tmp_path / 'index'}"])
        return next(part.megabytes for part in processes(cfg) if part.name == "retriever") - BASE_MB["search"]

    assert arrays(1) == pytest.approx(4 * arrays(4), rel=1e-3) and arrays(1) > 0.02


def test_the_dry_run_of_given_questions_has_no_proposer() -> None:
    cfg = load("quickstart", ["game.questions=dataset", "data.questions=world:train"])
    plan = "".join(describe(cfg)).split("# Actor graph")[1]
    assert "proposer" not in plan and "dataset: world:train" in plan and "Staleness bound: solver 0" in plan
    duel = {part.name: part for part in processes(load("quickstart"))}
    alone = {part.name: part for part in processes(cfg)}
    assert set(duel) - set(alone) == {"proposer", "learner-proposer"}
    assert alone["queue"].count == duel["queue"].count - 1
    assert alone["judge"].megabytes < duel["judge"].megabytes  # it holds no verifier


def test_the_default_duel_is_planned_where_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The README promises 4 GB, and 3.6 GB that are free."""
    assert console.main(["train", "--dry-run", "placement.nodes=1x0x0x4"]) == 0
    assert console.main(["train", "--dry-run", "placement.nodes=1x0x0x3.6"]) == 0
    assert "warning" not in capsys.readouterr().out


def test_free_memory_that_is_short_is_a_warning_behind_the_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "free_bytes", lambda: 2 * 2**30)
    assert console.main(["train", "--dry-run"]) == 0
    plan, _, said = capsys.readouterr().out.partition("warning: this machine needs")
    assert "# Memory of the hosts" in plan
    assert "close programs, or set placement.solvers=1 placement.proposers=1" in said
    assert short(load("quickstart"), make(load("quickstart"), [machine.here()]))


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


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), sqlite3.OperationalError("disk is full")])
def test_a_full_disk_is_one_paragraph(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    later = OSError("while closing")
    later.__context__ = error
    assert console.run(raising(later), []) == 2
    assert "resume=auto" in capsys.readouterr().err


def test_another_error_of_the_system_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(raising(OSError(5, "Input/output error")), []) == 1
    assert "Input/output" in capsys.readouterr().err


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
