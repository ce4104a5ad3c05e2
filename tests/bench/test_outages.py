"""Injected outages: who fails when, the two ways of taking it, and what is counted as a corrupted reward."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import torch

sys.path.append(str(Path(__file__).parent / "experiments"))

import aliases  # noqa: E402
import alone  # noqa: E402
import outages as o  # noqa: E402
import run  # noqa: E402

from ssp.base.episode import Document  # noqa: E402
from ssp.base.errors import Fault  # noqa: E402
from ssp.game.corpora import TRAIN  # noqa: E402
from ssp.game.judge import Item  # noqa: E402
from ssp.game.judge.judges import (
    PROBE,  # noqa: E402
    prompt,  # noqa: E402
)
from ssp.learning import losses  # noqa: E402

FOUND = Document("d", '"d"\nfound')


class Finds:
    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        return [[FOUND] for _ in queries]


def during(service: str, ssp: bool, services: tuple[str, ...] = tuple(o.SCHEDULE)) -> o.Outages:
    made = o.Outages(0, ssp, services)
    made.at(o.SCHEDULE[service][0])
    return made


def test_an_outage_has_its_rounds_and_a_waiting_run_lets_them_pass() -> None:
    clock = o.Outages(0, False)
    failing = []
    for step in range(1, 41):
        clock.at(step)
        clock.at(step)  # the second worker of a round
        failing += [(step, name) for name in o.SCHEDULE if any(clock.fails(name, i) for i in range(50))]
    assert failing == [(step, name) for name, (begin, end) in o.SCHEDULE.items() for step in range(begin, end)]
    waiting = during("judge", False)
    assert any(waiting.fails("judge", i) for i in range(50))
    waiting.now += 2 * o.PROBE
    assert not any(waiting.fails("judge", i) for i in range(50))
    assert not any(during("judge", False, ("retriever",)).fails("judge", i) for i in range(50))
    share = sum(during("judge", False).fails("judge", i) for i in range(400)) / 400
    assert abs(share - o.FAILS) < 0.1


def test_a_failed_search_is_a_fault_here_and_a_text_there_and_the_yardstick_meets_neither() -> None:
    queries = [f"q{i}" for i in range(20)]
    with pytest.raises(Fault, match="retriever_down"):
        ours = o.FailingSearch(Finds(), during("retriever", ssp=False))
        for query in queries:
            ours.search([query], 3, TRAIN)
    theirs = o.FailingSearch(Finds(), during("retriever", ssp=True))
    found = theirs.search(queries, 3, TRAIN)
    assert {documents[0].id for documents in found} == {"d", "error"}
    assert theirs.search(queries, 3, "world:heldout") == [[FOUND]] * 20
    assert o.FailingSearch(Finds(), o.Outages(0, True)).search(queries, 3, TRAIN) == [[FOUND]] * 20


def test_the_judge_over_http_knows_both_names_and_is_out_of_order_in_its_outage() -> None:
    world = aliases.AliasWorld(3)
    first, second = next(names for names in map(world.names, world.entities) if len(names) == 2)

    client = httpx.Client(timeout=60)

    def ask(url: str, item: Item) -> tuple[int, str]:
        body = {"messages": [{"role": "user", "content": prompt(item, "word")}]}
        got = client.post(f"{url}/chat/completions", json=body)
        said = got.json()["choices"][0]["message"]["content"] if got.status_code == 200 else ""
        return got.status_code, said

    clock = o.Outages(0, True)
    with client, o.judge(clock, world) as url:
        assert ask(url, Item("x mentor ?", [first], second)) == (200, "Correct")
        assert ask(url, Item("x mentor ?", [first], "nobody")) == (200, "Wrong")
        clock.at(o.SCHEDULE["judge"][0])
        codes = {ask(url, Item(f"x{i} mentor ?", [first], second))[0] for i in range(20)}
        assert codes == {200, 503} and ask(url, PROBE)[0] == 200


def test_a_reward_is_corrupted_when_truth_would_have_given_another(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    database = sqlite3.connect(ledger)
    database.execute("CREATE TABLE episodes(id, game_id, role, outcome, reward)")
    database.execute("CREATE TABLE games(id, verdict)")
    database.executemany("INSERT INTO games VALUES(?, ?)", [("g", "valid"), ("h", "valid"), ("r", "rejected")])
    rows = [
        ("gp", "g", "proposer", "scored", 0.5), ("g1", "g", "solver", "scored", 1.0), ("g2", "g", "solver", "scored", 0.0),
        ("hp", "h", "proposer", "scored", 1.0), ("h1", "h", "solver", "scored", 0.0), ("h2", "h", "solver", "void", None),
        ("rp", "r", "proposer", "rejected", 0.0), ("e", "e", "eval", "scored", 1.0),
    ]  # fmt: skip
    database.executemany("INSERT INTO episodes VALUES(?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    seen = o.Outages(0, True, truths={"g1": True, "g2": False, "h1": True, "h2": True}, touched={"rp"})
    found = o.damage(ledger, seen)
    assert found["corrupted_solver"] == pytest.approx(1 / 3)  # h1 was right
    assert found["corrupted_proposer"] == pytest.approx(2 / 3)  # hp, whose true reward is 0, and rp
    assert found["proposer_overpaid"] == pytest.approx(0.5) and found["void_solver"] == 0.25
    honest = o.damage(ledger, o.Outages(0, False, truths={"g1": True, "g2": False, "h1": False, "h2": False}))
    assert honest["corrupted_solver"] == honest["corrupted_proposer"] == honest["proposer_overpaid"] == 0


def test_uncorrected_is_the_gradient_of_on_policy_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses.Tokens, "ratio", losses.Tokens.ratio)

    def gradient(name: str) -> torch.Tensor:
        logprobs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
        behaviour, advantages = torch.tensor([-2.0, -0.2, -0.5]), torch.tensor([1.0, -1.0, 0.5])
        tokens = losses.Tokens(logprobs, behaviour, advantages, torch.zeros(3, dtype=torch.long))
        losses.get(name)(tokens, losses.LossOptions())[0].sum().backward()
        assert logprobs.grad is not None
        return logprobs.grad

    corrected = gradient("tis")
    alone.uncorrected()
    assert torch.equal(gradient("tis"), gradient("pg")) and torch.equal(gradient("ppo_clip"), gradient("pg"))
    assert not torch.allclose(corrected, gradient("pg"))


@pytest.mark.long
@pytest.mark.parametrize("way", ["void", "ssp"])
def test_outages_of_a_whole_run_corrupt_rewards_only_in_ssps_way(tmp_path: Path, way: str) -> None:
    about = run.experiment("outages")
    words = run.command(about, way, 0, tmp_path / "run")
    small = [
        "proposer.batch=24",
        "solver.batch=12",
        "game.attempts=4",
        "eval.every=0",
        "eval.final_questions_per_hop=4",
    ]
    subprocess.run([*words, *small, "steps=36"], check=True, cwd=run.REPO, timeout=280)
    found = json.loads((tmp_path / "run" / "faults.json").read_text())
    if way == "ssp":
        assert found["corrupted_solver"] > 0.02 and found["corrupted_proposer"] > 0.1 and found["void_proposer"] == 0
    else:
        assert found["corrupted_solver"] == 0 and found["corrupted_proposer"] < 0.05 and found["void_proposer"] > 0
