"""A run folder of somebody else: looking at it executes none of its code, sends no key and shows no secret."""

from __future__ import annotations

import ast
import json
import shutil
import sqlite3
from operator import attrgetter
from pathlib import Path

import pytest

from launch.main import main
from ssp.base.episode import ROLES, Episode
from ssp.base.errors import InputError
from ssp.base.printable import printable
from ssp.base.services import JUDGE_KEY, key_from
from ssp.config import own
from ssp.config.load import to_yaml
from ssp.game.judge.endpoint import Endpoint
from ssp.game.judge.judges import rubric
from ssp.learning import kl
from ssp.selfplay.settings import load
from tests.replay.replayruns import play, put, rewrite, rows

ROOT = Path(__file__).resolve().parent.parent
EVIL = """
from pathlib import Path
Path(__file__).with_name("executed").touch()
from ssp.learning.algorithms.estimators import Grpo
from ssp.learning.losses import ppo_clip as loss
from ssp.learning.kl import k3 as kl
class Estimator(Grpo):
    pass
def reward(response, golds):
    return 1.0
def price(win_rate):
    return 1.0 - win_rate
"""
CODE = {"loss": "loss", "algorithm": "Estimator", "kl.kind": "kl"}
PLACES = {"defaults.reward": "reward", "solver.reward": "reward", "proposer.reward": "price"}
PLACES |= {f"{role}.{key}": name for role in ROLES for key, name in CODE.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("whole") / "run", "steps=2")


@pytest.fixture
def evil(whole: Path, tmp_path: Path) -> Path:
    """The run, whose config.yaml now names the file evil.py inside for all that can be code."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "evil.py").write_text(EVIL)
    cfg = load(str(folder / "config.yaml"))
    cfg.solver.reward_options, cfg.proposer.reward_options = {}, {}
    for key, name in PLACES.items():
        block, _, field = key.rpartition(".")
        setattr(attrgetter(block)(cfg), field, f"{folder / 'evil.py'}:{name}")
    (folder / "config.yaml").write_text(to_yaml(cfg))
    return folder


def episodes(run: Path) -> dict[str, str]:
    """Role → an episode of it that was trained."""
    book = sqlite3.connect(run / "ledger.db")
    found = dict(book.execute("SELECT role, id FROM episodes WHERE state = 'trained'").fetchall())
    book.close()
    return found


LOOKS = [
    ["board", "{run}", "--save", "{out}.html"],
    ["bank", "{run}", "--export", "{out}.parquet", "--transcripts"],
    ["inspect", "{run}:{solver}", "--check"],
    ["inspect", "{run}:{proposer}", "--check", "--tokens"],
    ["compare", "{run}"],
    ["doctor", "--ledger", "{run}/ledger.db"],
    ["replay", "{run}:{solver}"],
    ["eval", "--policy", "{run}", "--data", "world:heldout", "--per-hop", "1"],
    ["ask", "vene mayor ?", "--policy", "{run}"],
    ["train", "--dry-run", "game.questions=dataset", "data.questions={run}"],
]


@pytest.mark.slow
@pytest.mark.parametrize("argv", LOOKS, ids=" ".join)
def test_looking_at_a_run_executes_none_of_its_code(
    argv: list[str], evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"run": evil, "out": tmp_path / "out", **episodes(evil)}
    code = main([word.format(**names) for word in argv])
    shown = capsys.readouterr()
    assert code in (0, 1) and "Traceback" not in shown.err, shown.err
    assert not (evil / "executed").exists()
    if "--check" in argv or argv[0] == "replay":
        assert "reward: NOT COMPARED" in shown.out and "evil.py" in shown.out and "--trust-code" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize("argv", LOOKS, ids=" ".join)
def test_looking_at_a_run_starts_none_of_its_tools(
    argv: list[str], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "evilmodule.py").write_text(EVIL)
    monkeypatch.syspath_prepend(run)
    for tool in ("mcp:stdio:touch {run}/executed", "evilmodule"):
        cfg = load(str(whole / "config.yaml"))
        for block in (cfg.defaults, cfg.solver, cfg.proposer):
            block.tools = ["search", tool.format(run=run)]
        (run / "config.yaml").write_text(to_yaml(cfg))
        names = {"run": run, "out": tmp_path / f"out{len(tool)}", **episodes(run)}
        code = main([word.format(**names) for word in argv])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err, shown.err
        assert code in (0, 1) or ("--trust-code" in shown.err or tool == "evilmodule"), shown.err
        assert not (run / "executed").exists(), tool


@pytest.mark.slow
@pytest.mark.parametrize("argv", [["inspect", "{run}:{solver}", "--check"], ["replay", "{run}:{solver}"]], ids=" ".join)
def test_who_trusts_it_has_it_executed(argv: list[str], evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*(word.format(run=evil, **episodes(evil)) for word in argv), "--trust-code"])
    assert (evil / "executed").exists() and "NOT COMPARED, " not in capsys.readouterr().out


PLANTED = "\x1b]0;t\x07\x1b[2J \u202e [/...pair.cc:553]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        ["inspect", "{run}:{solver}"],
        ["replay", "{run}:{solver}"],
        ["bank", "{run}", "--show", "{game}"],
        ["bank", "{run}", "--episodes", "--limit", "1000"],
        ["ask", f"vene {PLANTED} ?", "--policy", "{run}"],
        ["eval", "--policy", "{run}", "--data", "{data}", "--corpus", "{data}"],
        ["data", "convert", "{data}", "--to", "plain", "--out", "{out}.jsonl"],
        ["compare", "{run}", "--metric", PLANTED],
    ],
    ids=lambda argv: " ".join(argv).encode("unicode_escape").decode(),
)
def test_what_is_planted_in_a_run_or_a_file_reaches_no_terminal(
    argv: list[str], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an answer, a transcript, a question, a row of data, the run's name, an exception's text."""
    run = tmp_path / f"run{PLANTED.replace('/', '')}"
    shutil.copytree(whole, run)
    (row,) = rows(run, "SELECT * FROM episodes WHERE role = 'solver' AND state = 'trained' ORDER BY id LIMIT 1")

    def plant(episode: Episode) -> None:
        episode.final, episode.text = PLANTED, episode.text + PLANTED

    rewrite(run, row, plant)
    put(run, "UPDATE games SET question = question || ?, target = ? WHERE id = ?", PLANTED, PLANTED, row["game_id"])
    data = tmp_path / f"data{PLANTED.replace('/', '')}.jsonl"
    data.write_text(
        json.dumps({"id": PLANTED, "question": f"vene {PLANTED} ?", "answer": PLANTED, "contents": PLANTED})
    )
    names = {"run": run, "solver": row["id"], "game": row["game_id"], "data": data, "out": tmp_path / "out"}
    code = main([word.format(**names) for word in argv])
    shown = capsys.readouterr()
    assert code in (0, 1, 2) and "Traceback" not in shown.err, shown.err
    assert printable(shown.out + shown.err) == shown.out + shown.err
    assert "\\u202e" in shown.out + shown.err, "it is shown, harmlessly"


@pytest.mark.slow
def test_a_config_that_is_typed_is_executed(evil: Path) -> None:
    assert main(["train", "--dry-run", "--config", str(evil / "config.yaml"), f"run.dir={evil.parent / 'new'}"]) == 0
    assert (evil / "executed").exists()


@pytest.mark.parametrize("place", ["evil.py:reward", "os:system", "os.path.join", "ssp.base.files:whole"])
def test_a_sealed_place_is_never_found(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(f"solver:\n  reward: {place}\n  kl: {{kind: {place}}}\n")
    cfg = load(str(tmp_path / "config.yaml"), trusted=False)
    with pytest.raises(InputError, match="--trust-code"):
        own.find(cfg.solver.reward, "the reward", "def reward(response, golds):")
    with pytest.raises(InputError, match="--trust-code"):
        kl.get(cfg.solver.kl.kind)


def test_a_run_of_an_earlier_version_is_read_without_settings_that_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    gone = "league: {shares: {newest: 1.0}, match: mix, every: 3}\nsave: {every: 4}\nsolver:\n  kl: {horizon: 7.0}\n  reward_options: {}\njudge: {fold: true}\n"
    path.write_text(gone)
    cfg = load(str(path), trusted=False)
    assert (cfg.league.every, cfg.solver.kl.horizon, cfg.solver.reward_options) == (4, 10_000.0, {})
    with pytest.raises(InputError, match="judge.fold is gone"):
        load(str(path))


def test_secrets_of_the_environment_are_not_read_into_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    path = tmp_path / "config.yaml"
    for text in ("run: {name: '${oc.env:SECRET}'}", "judge: {url: 'http://x/${oc.env:SECRET}'}", "seed: ${steps}"):
        path.write_text(text)
        with pytest.raises(InputError, match="plain values") as raised:
            load(str(path), trusted=False)
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://127.0.0.1:5000/v1", True),
        ("http://localhost/v1", True),
        ("https://evil.example/v1", False),
        ("http://localhost:80@evil.example/v1", False),
        ("http://127.0.0.1.evil.example/v1", False),
    ],
)
def test_a_key_goes_nowhere_that_only_a_run_names(
    url: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JUDGE_KEY, "hunter2")
    (tmp_path / "config.yaml").write_text(
        f"judge: {{url: '{url}'}}\nsolver: {{engine: {{kind: torch}}}}\n"
        f"retriever: {{url: '{url}', online: {{engine: serper}}}}"
    )
    monkeypatch.setattr("ssp.selfplay.settings.RULES", ())  # which refuses a user in an address
    cfg = load(str(tmp_path / "config.yaml"), trusted=False)
    assert own.sealed(cfg.retriever.url) is not kept
    if kept:
        assert key_from(JUDGE_KEY, cfg.judge.url) == "hunter2"
    else:
        with pytest.raises(InputError, match="--trust-code"):
            Endpoint(cfg.judge)
        monkeypatch.delenv(JUDGE_KEY)
        Endpoint(cfg.judge)  # to which nothing secret goes


@pytest.mark.parametrize(("url", "sent"), [("http://127.0.0.1:5000/v1", True), ("https://evil.example/v1", False)])
def test_a_file_goes_to_no_judge_that_only_a_run_names(url: str, sent: bool, tmp_path: Path) -> None:
    """`judge.format` may name any text file of this machine, whose words a judge is told."""
    (tmp_path / "mine.txt").write_text("hunter2")
    (tmp_path / "config.yaml").write_text(
        f"judge: {{kind: llm, model: m, url: '{url}', format: '{tmp_path / 'mine.txt'}'}}"
    )
    cfg = load(str(tmp_path / "config.yaml"), trusted=False)
    if sent:
        assert rubric(cfg.judge) == "hunter2"
    else:
        with pytest.raises(InputError, match="--trust-code"):
            rubric(cfg.judge)
    typed = load(str(tmp_path / "config.yaml"), [f"judge.url={url}"], trusted=False)
    assert rubric(typed.judge) == "hunter2"


def test_every_reader_of_a_run_says_whether_it_trusts_it() -> None:
    """`load` of a run's own config.yaml without `trusted` would execute what stands there."""
    silent = []
    for path in (path for room in ("ssp", "actors", "launch") for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "load" and node.args:
                said = ast.unparse(node)
                if "str(" in said:
                    silent += [f"{path.name}: {said}"] if "trusted" not in said else []
    assert silent == []


def test_models_bring_no_code_and_no_pickles() -> None:
    """What transformers loads by a folder's own words is told so at every place; what torch loads, too."""
    loose = []
    for path in (path for room in ("ssp", "actors", "launch") for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called, said = ast.unparse(node.func), ast.unparse(node)
            needs = {"torch.load": "weights_only=True", "pickle.load": "never", "yaml.load": "never"}.get(called)
            if called.endswith(".from_pretrained") and not called.startswith("PreTrainedTokenizerFast"):
                needs = "trust_remote_code=False"
            if needs and needs not in said or "allow_pickle=True" in said:
                loose.append(f"{path.name}: {said}")
    assert loose == []
