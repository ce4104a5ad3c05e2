"""`ssp eval` and `ssp ask` in one process, with a random policy and the real world, search, rollout and engine."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from fakejudge import serving
from transformers import Qwen2Config, Qwen2ForCausalLM

from launch import ask
from launch import eval as evaluate
from launch.shown import transcript
from ssp.base.episode import SOLVER, Episode, Grade, Task
from ssp.base.errors import Fault, InputError
from ssp.base.tokenlog import Kind
from ssp.config.load import to_yaml
from ssp.config.schema import Config
from ssp.game import corpora, protocols
from ssp.game.judge import Item, endpoint
from ssp.game.world import tokenizer as words
from ssp.selfplay.records import PlayOrder
from ssp.selfplay.settings import load
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.workers import build
from ssp.selfplay.workers.player import Player
from ssp.telemetry.terminal import Terminal, table

TINY = ["steps=1", "solver.limits.turn_tokens=6"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSP_CACHE", str(cache))
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer policy of protocol mini."""
    folder = tmp_path_factory.mktemp("policy")
    tokens = words.build()
    torch.manual_seed(0)
    shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    config = Qwen2Config(vocab_size=len(tokens), hidden_size=16, intermediate_size=16, **shape)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    (folder / "ssp.json").write_text(json.dumps({"protocol": "mini"}))
    return folder


@pytest.fixture
def scripted(policy: Path, searcher: None) -> Path:
    return policy


def first_question() -> str:
    path = corpora.files.resolve("world:heldout", "eval")
    return json.loads(Path(path).read_text().splitlines()[0])["question"]


def test_eval_plays_every_configured_set_and_writes_rows(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, summary = tmp_path / "rows.jsonl", tmp_path / "summary.json"
    code = evaluate.main(
        ["--policy", str(policy), "--per-hop", "3", "--out", str(out), "--summary", str(summary), *TINY]
    )
    printed = capsys.readouterr().out
    assert code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["set"] for row in rows} == {"heldout", "train", "nosearch"}
    assert len(rows) == 3 * 3 * 3 and all(row["em"] == 0 and row["f1"] == 0 for row in rows)
    assert "heldout: episodes ended by: tokens 9" in printed
    assert "heldout 1hop" in printed and "95 % interval" in printed and str(policy) in printed
    table = json.loads(summary.read_text())
    assert table["heldout 2hop"]["rows"] == 3
    assert "macro average" not in table, "the training world and search switched off are controls, in no average"
    assert table["train"]["em"] == {"mean": 0.0, "low": 0.0, "high": pytest.approx(0.2992, abs=1e-4)}, "0 of 9"


@pytest.mark.covers("SR-15")
def test_every_row_is_scored_once_and_greedy_is_the_same_twice(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Path(corpora.files.resolve("world:heldout", "eval")).read_text().splitlines()[:1003]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines) + "\n")

    def run(*flags: str) -> tuple[str, str]:
        out = tmp_path / "rows.jsonl"
        out.unlink(missing_ok=True)
        flags = ("--policy", str(policy), "--data", str(data), "--corpus", "none", "--out", str(out), *flags, *TINY)
        assert evaluate.main(list(flags)) == 0
        return out.read_text(), capsys.readouterr().out

    rows, table = run()
    ids = [json.loads(line)["id"] for line in rows.splitlines()]
    assert ids == [json.loads(line)["id"] for line in lines] and len(set(ids)) == 1003
    assert run() == (rows, table)
    assert run("--batch", "100") == (rows, table), "the size of the batches changes nothing"
    warm = run("--temperature", "1")
    assert warm[0] != rows and run("--temperature", "1") == warm != run("--temperature", "1", "seed=1")


def test_a_void_is_told_with_its_cause_and_a_set_without_a_score_is_exit_code_1(
    policy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(lost: int, tasks: list[Task]) -> list[Episode]:
        episodes = [Episode(task.id, task.game, task.role, 0, final="x") for task in tasks]
        for episode in episodes[:lost]:
            episode.void(Fault("engine_died"))
        return episodes

    for lost, code in ((1, 0), (99, 1)):
        monkeypatch.setattr(build, "player", Mock(return_value=partial(down, lost)))
        assert evaluate.main(["--policy", str(policy), "--data", "world:heldout", "--per-hop", "1", *TINY]) == code
        assert "world:heldout: void: engine_died " in capsys.readouterr().out


@pytest.mark.covers("SP-09")
def test_the_judge_has_a_column_and_its_failures_too(
    scripted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stub:
        checked = 0

        def check(self) -> None:
            self.checked += 1

        def decide(self, items: list[Item]) -> list[Grade]:
            words = [Grade(True, by="llm"), Grade(None, void_cause="judge_timeout", by="llm"), Grade(False, by="llm")]
            return [words[i % 3] for i in range(len(items))]

    stub = Stub()
    monkeypatch.setattr(build, "judge", lambda cfg: stub)
    out = tmp_path / "rows"
    settings = ["judge.kind=llm", "judge.url=http://127.0.0.1:1/v1", "judge.model=stub", *TINY]
    few = ["--policy", str(scripted), "--per-hop", "1", "--data", "world:heldout", "--out", str(out)]
    assert evaluate.main([*few, *settings]) == 0 and stub.checked == 1
    heading = next(line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("set"))
    assert {"EM", "F1", "judge", "failures"} <= set(heading.split())
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["judge"], row["judge_failure"]) for row in rows[:3]] == [
        (True, ""), (None, "judge_timeout"), (False, "")
    ]  # fmt: skip


@pytest.mark.covers("U18")
def test_graded_answers_have_a_mean_score_with_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exact match is 1, no answer 0, without asking; a row's rubric is told; a reply that is no score is a failure."""
    data, given, out = tmp_path / "q.jsonl", tmp_path / "p.jsonl", tmp_path / "table.json"
    answers = {"a": "Rome", "b": "in Rome, perhaps", "c": "Ostia", "d": None, "e": "odd"}
    rows = [{"id": id, "question": f"{id} ?", "answer": "Rome", "rubric": f"rubric of {id}"} for id in answers]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given.write_text("".join(json.dumps({"id": id, "prediction": said}) + "\n" for id, said in answers.items()))
    scores = {"in Rome, perhaps": '{"rationale": "", "score": 0.75}', "Ostia": '{"rationale": "", "score": 0.25}'}
    monkeypatch.setattr(endpoint, "BACKOFF", 0.001)
    with serving(
        lambda said, number: scores.get(said["answer"], "0.9" if said["answer"] == "odd" else scores["Ostia"])
    ) as server:
        judge = ["judge.kind=llm", f"judge.url={server.url}", "judge.model=m", "judge.format=score"]
        named = ["--predictions", str(given), "--data", str(data), "--summary", str(out)]
        assert evaluate.main([*named, *judge]) == 0
        texts = [body["messages"][-1]["content"] for body in server.bodies]
    assert any("rubric of b" in text for text in texts) and not any("rubric of a" in text for text in texts)
    assert any({"EM", "F1", "judge", "score"} <= set(line.split()) for line in capsys.readouterr().out.splitlines())
    table = json.loads(out.read_text())["q"]
    assert table["score"]["mean"] == pytest.approx((1 + 0.75 + 0.25 + 0) / 4) and table["failures"] == 1
    assert table["score"]["low"] < 0.5 < table["score"]["high"] and table["judge"]["mean"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "nowhere"], "existing folder"),
        (["--policy", "solver@nowhere"], "existing folder"),
        (["--policy", "solver@."], "goes before a run"),
        (["--policy", "http://127.0.0.1:1/v1"], "--model and --tokenizer"),
        (["--model", "x"], "it alone, comes with"),
        (["--out", "no/such/folder/rows"], "--out"),
        (["--data", "a/x.jsonl", "b/x.jsonl"], "different names"),
        (["stepz=3"], "steps"),
        (["data.eval=[]", "eval.every=0"], "needs an evaluation set"),
        (["--corpus", "none"], "--corpus is of --data"),
        (["--samples", "4"], "greedy samples"),
        (["--samples", "4", "--k", "8"], "--k goes up to"),
        (["--samples", "0"], "from 1 to"),
        (["--temperature=-1"], "from 0 to"),
        (["--out", "/dev/null"], "new files"),
        (["--out", "./x", "--summary", "x"], "new files"),
    ],
)
def test_eval_refuses(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate.main(arguments)


def run_folder(tmp_path: Path, policy: Path, *settings: str) -> Path:
    """A run with both roles' checkpoints and a config of its own."""
    run = tmp_path / "runs" / "mine-001"
    for role in ("proposer", "solver"):
        shutil.copytree(policy, run / "checkpoints" / role / "v3")
    (run / "config.yaml").write_text(to_yaml(load("quickstart", [*TINY, *settings])))
    folders = {role: f"checkpoints/{role}/v3" for role in ("proposer", "solver")}
    (run / "checkpoints" / "state.json").write_text(json.dumps({"folders": folders}))
    return run


def test_a_run_is_evaluated_with_its_own_settings(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder(tmp_path, policy, "seed=7")
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    few = ["--per-hop", "1", "--data", "world:heldout"]
    for name, role in ((str(run), "solver"), ("mine-001", "solver"), ("proposer@mine-001", "proposer")):
        assert evaluate.main(["--policy", name, *few]) == 0
        printed = capsys.readouterr().out
        assert f"{run}/checkpoints/{role}/v3" in printed and "seed 7" in printed
    assert evaluate.main(["--policy", str(run), "--config", "quickstart", *few, *TINY]) == 0
    assert "seed 0" in capsys.readouterr().out
    (run / "checkpoints" / "state.json").unlink()
    with pytest.raises(InputError, match="has a checkpoint"):
        evaluate.main(["--policy", str(run), *few])


@pytest.mark.covers("SR-70")
def test_ask_prints_what_the_training_rollout_logs(
    scripted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg, question = Config(), first_question()
    assert ask.main([question, "--policy", str(scripted), "--corpus", "world:heldout"]) == 0
    printed = capsys.readouterr().out
    player = Player(cfg, SOLVER, scripted, corpora.search(cfg, ["world:heldout"]), tmp_path)
    task = Task("t", "g", SOLVER, 0, 5, {"question": question}, "world:heldout")
    ((episode,), _) = player.play([task], PlayOrder(0.0, ""), 0, Parcel({}))
    tokens, protocol = words.build(), protocols.get("mini")
    pieces = [
        transcript.piece(protocol, SOLVER, kind, tokens.decode(episode.log.ids[start:end])).plain
        for kind, start, end in episode.log.stretches()
    ]
    assert len(pieces) == 4 and episode.documents
    row = json.loads(Path(corpora.files.resolve("world:heldout", "eval")).read_text().splitlines()[0])
    said = transcript.outcome(episode, row["golden_answers"], right=False).plain
    assert printed == "\n".join([*pieces, said, ""])


def test_ask_takes_questions_from_the_input(
    scripted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    question = first_question()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{question}\nLondon seat ?\n{question}\n"))
    assert ask.main(["--policy", str(scripted), *TINY]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("answer: none") == 2 and "London" in shown.err


def test_a_byte_that_is_no_text_ends_no_other_question(scripted: Path) -> None:
    typed = [sys.executable, "-m", "launch.main", "ask", "--policy", str(scripted), *TINY]
    given = b"pota \xff ?\n" + first_question().encode() + b"\n"
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    ended = subprocess.run(typed, input=given, capture_output=True, env=env, cwd=Path(__file__).parents[2])
    assert b"valid Unicode" in ended.stderr and b"Traceback" not in ended.stderr and ended.stdout.count(b"answer") == 1


def test_no_digit_of_a_table_is_cut_off() -> None:
    out = io.StringIO()
    rows = [["a rather long name of a set", *["100.0 ±12.5"] * 9], ["b", *["14267"] * 9]]
    Terminal(file=out, width=40, soft_wrap=True).print(table(("set", *(f"score {i}" for i in range(9))), rows))
    assert out.getvalue().count("100.0 ±12.5") == out.getvalue().count("14267") == 9 and "b" in out.getvalue()


def test_ask_refuses_words_that_the_policy_does_not_know(policy: Path) -> None:
    with pytest.raises(InputError, match="London"):
        ask.main(["London seat ?", "--policy", str(policy)])
    with pytest.raises(InputError, match="at least one word"):
        ask.main(["  ", "--policy", str(policy)])
    with pytest.raises(InputError, match="valid Unicode"):
        ask.main(["pota \udcff ?", "--policy", str(policy)])
    with pytest.raises(InputError, match="one question"):
        ask.main(["pota", "seat", "?", "--policy", str(policy)])
    for wrong in ("-1", "nan", "hot", "1e-300"):
        with pytest.raises(InputError, match="--temperature"):
            ask.main(["pota seat ?", f"--temperature={wrong}"])


def test_a_transcript_has_a_colour_for_each_segment_and_says_how_it_ended() -> None:
    mini = protocols.get("mini")
    said = transcript.piece(mini, SOLVER, Kind.MODEL, "<think> a\nb </think> <search> a </search> <answer> c </answer>")
    assert [line.split()[0] for line in said.plain.splitlines()] == ["think", "b", "search", "answer"]
    assert {str(span.style) for span in said.spans} >= {"yellow", "cyan", "bold"}
    shown = transcript.piece(mini, SOLVER, Kind.OBSERVATION, "<information> <search> x </information>")
    assert "(not closed)" in shown.plain and {str(span.style) for span in shown.spans} == {"dim"}
    assert "<q> a ? </q>" in transcript.piece(mini, SOLVER, Kind.PROMPT, "<q> a ? </q>").plain
    episode = Episode("e", "g", SOLVER, 0, final=None, stopped="turns")
    assert "no answer (turns)" in transcript.outcome(episode).plain
    episode.void(Fault("retriever_down"))
    assert "void: retriever_down" in transcript.outcome(episode).plain


def test_a_policy_of_another_protocol_is_refused(policy: Path, tmp_path: Path) -> None:
    for text in ('{"protocol": "other"}', "{}", "{"):
        (tmp_path / "ssp.json").write_text(text)
        with pytest.raises(InputError, match=r"ssp\.json|other"):
            build.check_protocol(tmp_path, "mini")
    build.check_protocol(policy, "mini")
    shutil.copytree(policy, tmp_path / "newer")
    (tmp_path / "newer" / "ssp.json").write_text(json.dumps({"protocol": "mini", "protocol_version": 2}))
    with pytest.raises(InputError, match="version 2"):
        evaluate.main(["--policy", str(tmp_path / "newer"), *TINY])
