"""`ssp eval` and `ssp ask` in one process, with a random policy and the real world, search, rollout and engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from launch import ask
from launch import eval as evaluate
from ssp import build, protocols
from ssp.config.schema import Config, EvalSet
from ssp.episode import Document, Episode, Outcome
from ssp.errors import InputError
from ssp.world import tokenizer as words

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
    config = Qwen2Config(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    (folder / "ssp.json").write_text(json.dumps({"protocol": "mini"}))
    return folder


def question_of(cfg: Config) -> str:
    path = build.files.resolve("world:heldout", "eval", cfg)
    return json.loads(Path(path).read_text().splitlines()[0])["question"]


def test_eval_plays_every_configured_set_and_writes_rows(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.jsonl"
    code = evaluate.main(["--policy", str(policy), "--per-hop", "3", "--out", str(out), *TINY])
    printed = capsys.readouterr().out
    assert code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["set"] for row in rows} == {"heldout", "train", "nosearch"}
    assert len(rows) == 3 * 3 * 3 and all(row["correct"] is False for row in rows)
    assert "1hop" in printed and "95 % interval" in printed and str(policy) in printed


def test_eval_of_own_files_takes_settings_after_them(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "mine.jsonl"
    data.write_text(json.dumps({"id": "1", "question": question_of(Config()), "golden_answers": ["x"]}) + "\n")
    assert evaluate.main(["--policy", str(policy), "--corpus", "none", "--data", str(data), *TINY]) == 0
    assert "mine" in capsys.readouterr().out


def test_eval_searches_a_world_in_the_corpus_that_was_typed(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--policy", str(policy), "--per-hop", "1", "--data", "world:heldout", *TINY]
    assert evaluate.main(few) == 0
    assert "world:heldout in world:heldout" in " ".join(capsys.readouterr().out.split())
    assert evaluate.main([*few, "--corpus", "none"]) == 0
    assert "world:heldout in none" in " ".join(capsys.readouterr().out.split())


def test_eval_is_repeatable(policy: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for out in (one, two):
        evaluate.main(["--policy", str(policy), "--per-hop", "2", "--data", "world:12", "--out", str(out)])
    assert one.read_text() == two.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "nowhere"], "existing folder"),
        (["--out", "no/such/folder/rows"], "--out"),
        (["--data", "a/x.jsonl", "b/x.jsonl"], "different names"),
        (["stepz=3"], "steps"),
        (["data.eval=[]", "eval.every=0"], "needs an evaluation set"),
        (["--corpus", "none"], "--corpus is of --data"),
    ],
)
def test_eval_refuses(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate.main(arguments)


def test_ask_prints_the_transcript(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = question_of(Config())
    assert ask.main([question, "--policy", str(policy), *TINY, "data.eval=[]", "eval.every=0"]) == 0
    capsys.readouterr()
    assert ask.main([question, "--policy", str(policy), *TINY]) == 0
    first, *_, last = capsys.readouterr().out.strip().splitlines()
    assert first.split() == ["q", *question.split()]
    assert "answer" in last


def test_ask_refuses_words_that_the_policy_does_not_know(policy: Path) -> None:
    with pytest.raises(InputError, match="London"):
        ask.main(["London seat ?", "--policy", str(policy)])
    with pytest.raises(InputError, match="no word"):
        ask.main(["  ", "--policy", str(policy)])
    with pytest.raises(InputError, match="valid Unicode"):
        ask.main(["pota \udcff ?", "--policy", str(policy)])
    for wrong in ("-1", "nan", "hot", "1e-300"):
        with pytest.raises(InputError, match="at least 0"):
            ask.main(["pota seat ?", f"--temperature={wrong}"])


def test_the_transcript_shows_every_segment_in_its_colour() -> None:
    text = "<q> a b ? </q> <search> a </search> <information> a b c . </information> <answer> c </answer>"
    episode = Episode("e", "g", "solver", 0, text=text, final="c", queries=["a"])
    shown = ask.transcript(episode, protocols.get("mini"))
    assert [line.split()[0] for line in shown.plain.splitlines()] == ["q", "search", "information", "answer", "answer:"]
    assert {span.style for span in shown.spans} >= {"cyan", "dim", "bold green"}
    episode.final, episode.stopped = None, "turns"
    assert "no answer (turns)" in ask.transcript(episode, protocols.get("mini")).plain
    episode.outcome, episode.cause = Outcome.VOID, "retriever_down"
    assert "void: retriever_down" in ask.transcript(episode, protocols.get("mini")).plain


def test_a_policy_of_another_protocol_is_refused(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "ssp.json").write_text(json.dumps({"protocol": "other"}))
    with pytest.raises(InputError, match="other"):
        build.check_protocol(tmp_path, "mini")
    for text in ("{}", "[]", "{"):
        (tmp_path / "ssp.json").write_text(text)
        with pytest.raises(InputError, match=r"ssp\.json"):
            build.check_protocol(tmp_path, "mini")
    assert build.check_protocol(policy, "mini")["protocol"] == "mini"


def test_a_run_folder_means_its_newest_solver(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "state.json").write_text(json.dumps({"folders": {"solver": str(policy)}}))
    assert build.policy_dir(Config(), tmp_path) == policy
    assert build.policy_dir(Config(), policy) == policy
    for state in ({}, {"folders": {}}, {"folders": []}, {"folders": {"solver": 3}}):
        (tmp_path / "checkpoints" / "state.json").write_text(json.dumps(state))
        with pytest.raises(InputError, match=r"state\.json"):
            build.policy_dir(Config(), tmp_path)


def test_corpora_are_named_once_and_none_has_no_file() -> None:
    cfg = Config()
    assert set(build.corpora(cfg)) == {"train", "world:heldout", "world:train"}
    assert build.corpora(cfg, ["none", "world:heldout"]).keys() == {"world:heldout"}
    cfg.data.eval = [EvalSet("a", "a.jsonl", "wiki.jsonl")]
    assert build.corpora(cfg)["wiki.jsonl"] == Path("wiki.jsonl")


def test_search_finds_an_entity_and_nothing_when_switched_off() -> None:
    cfg = Config()
    search = build.search(cfg, ["world:heldout"])
    entity = question_of(cfg).split()[0]
    ((first, *_),) = search.search([entity], 3, "world:heldout")
    assert isinstance(first, Document) and first.text.startswith(entity)
    assert search.search([entity], 3, "none") == [[]]
    with pytest.raises(InputError):
        search.search([entity], 3, "train")


def test_a_policy_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tokenizer"):
        build.tokenizer(tmp_path)
