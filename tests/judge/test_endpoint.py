"""The LLM judge over a real loopback server: retries, cache, breaker, bounds, causes, and where the key goes."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from fakejudge import HANG, FakeJudge, Reply, serving

from ssp.base.episode import Grade
from ssp.base.errors import Fault, InputError
from ssp.base.services import is_loopback
from ssp.config.schema import Config, JudgeConfig
from ssp.game.judge import Item
from ssp.game.judge import endpoint as endpoint_module
from ssp.game.judge.endpoint import LONGEST_PAUSE, LONGEST_REPLY, Breaker, Endpoint, Trouble
from ssp.game.judge.judges import PROBE, LlmJudge
from ssp.selfplay.workers import build
from tests.blocks import made

NO_KEY = "SSP_TEST_NO_SUCH_KEY"
KEY = "SSP_TEST_KEY"


class Sleeper:
    """Records pauses and takes none."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


def settings(server: FakeJudge, **changes: Any) -> JudgeConfig:
    base = {"kind": "llm", "url": server.url, "model": "m", "key_env": NO_KEY, "timeout": 5.0}
    return made(JudgeConfig, **{**base, **changes})


def judge(server: FakeJudge, sleeper: Sleeper | None = None, seconds: float = 60.0, **changes: Any) -> LlmJudge:
    cfg = settings(server, **changes)
    return LlmJudge(cfg, Endpoint(cfg, seconds, seed=1, sleep=sleeper or Sleeper()))


def item(answer: str, question: str = "who ?") -> Item:
    return Item(question, ("pota",), answer)


def by_answer(said: dict[str, Any]) -> str:
    return {"y": "Correct", "n": "Wrong."}.get(said["answer"][0], "I would say that it depends")


VOID = {
    cause: Grade(None, void_cause=f"judge_{cause}", by="llm") for cause in ("down", "refused", "format", "deadline")
}


@pytest.mark.covers("RS-12")
def test_right_wrong_garbage_and_a_time_out_over_all_items() -> None:
    """Failures stay among the items and are counted; 5 tries each by default."""

    def answer(said: dict[str, Any], number: int) -> str:
        return HANG if said["answer"] == "late" else by_answer(said)

    sleeper = Sleeper()
    with serving(answer) as server:
        found = judge(server, retries=4).decide([item(answer) for answer in ("yes", "no", "hm")])
        tries = [said["answer"] for said in server.items]
        found += judge(server, sleeper, retries=4, timeout=0.2).decide([item("late")])
    assert found == [Grade(True, by="llm"), Grade(False, by="llm"), VOID["format"], VOID["down"]]
    assert {answer: tries.count(answer) for answer in tries} == {"yes": 1, "no": 1, "hm": 5}
    assert len(sleeper.pauses) == 4  # on a busy machine a try is over before the server has seen it
    assert sum(d.right is True for d in found) / len(found) == 0.25
    assert sum(d.right is None for d in found) == 2


def test_what_is_sent() -> None:
    with serving(lambda said, n: "Correct") as server:
        cfg = Config(judge=settings(server, max_tokens=7))
        assert build.judge(cfg).decide([item("yes"), item("Pota"), item("")])[0].right is True
        (body,) = server.bodies
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 7)
    assert [m["role"] for m in body["messages"]] == ["user"] and server.keys == [None]
    assert server.items == [{"question": "who ?", "accepted": ["pota"], "answer": "yes"}]


@pytest.mark.covers("RS-12")
def test_the_cache_saves_the_second_request() -> None:
    with serving(lambda said, n: by_answer(said)) as server:
        asked = build.judge(Config(judge=settings(server)))
        for _ in range(3):
            assert [d.right for d in asked.decide([item("yes"), item("Yes!"), item("no")])] == [True, True, False]
        assert server.requests == 2


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503])
def test_trouble_of_the_service_is_tried_again_then_void(status: int) -> None:
    sleeper = Sleeper()
    with serving(lambda said, n: Reply("busy", status)) as server:
        assert judge(server, sleeper, retries=3).decide([item("yes")]) == [VOID["down"]]
        assert server.requests == 4
    assert len(sleeper.pauses) == 3
    for pause, base in zip(sleeper.pauses, (0.5, 1.0, 2.0), strict=True):
        assert base / 2 <= pause <= base


def test_a_retry_that_helps() -> None:
    replies = [Reply("", 503), Reply(raw=b"<html>"), Reply("Incorrect, I think"), Reply("Wrong")]
    with serving(lambda said, n: replies[n - 1]) as server:
        assert judge(server).decide([item("yes")]) == [Grade(False, by="llm")]
        assert server.requests == 4


def test_pauses_depend_on_the_seed_only_and_retry_after_counts_within_bounds() -> None:
    def pauses(after: str) -> list[float]:
        sleeper = Sleeper()
        with serving(lambda said, n: Reply("slow down", 429, {"Retry-After": after})) as server:
            judge(server, sleeper, retries=2).decide([item("yes")])
        return sleeper.pauses

    assert pauses("") == pauses("Wed, 21 Oct 2015 07:28:00 GMT") == pauses("0")
    assert pauses("7") == [7.0, 7.0]
    assert pauses("86400") == [LONGEST_PAUSE] * 2


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": null}}]}',
        b'{"choices": [{"message": {"content": ["Correct"]}}]}',
        b'{"choices": [{"text": "Correct"}]}',
        b"<html>Correct</html>",
        json.dumps({"choices": [{"message": {"content": "Correct " * 150_000}}]}).encode(),
        b'{"choices": [{"message": {"content": "Correct"}}], "more": "' + b"x" * LONGEST_REPLY + b'"}',
    ],
)
def test_a_body_of_another_kind_is_a_format_failure(raw: bytes) -> None:
    with serving(lambda said, n: Reply(raw=raw)) as server:
        assert judge(server, retries=1).decide([item("yes")]) == [VOID["format"]]
        assert server.requests == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refused_request_is_not_tried_again(status: int) -> None:
    with serving(lambda said, n: Reply("no such model", status)) as server:
        assert judge(server).decide([item("yes")]) == [VOID["refused"]]
        assert server.requests == 1


def test_nobody_listens() -> None:
    with serving(lambda said, n: "Correct") as server:
        gone = server
    found = judge(gone, retries=2).decide([item(f"y{i}") for i in range(20)])
    assert found == [VOID["down"]] * 20


def test_the_bound_on_requests_at_once_is_kept_and_used() -> None:
    def answer(said: dict[str, Any], number: int) -> str:
        time.sleep(0.02)
        return by_answer(said)

    with serving(answer) as server:
        found = judge(server, concurrency=3).decide([item(f"y{i}") for i in range(15)])
        assert all(d.right for d in found) and server.requests == 15
        assert server.most == 3


def test_the_whole_batch_has_a_deadline() -> None:
    def answer(said: dict[str, Any], number: int) -> str:
        return HANG if said["answer"].startswith("n") else by_answer(said)

    with serving(answer) as server:
        found = judge(server, seconds=0.8).decide([item("yes"), item("n1"), item("n2")])
    assert found == [Grade(True, by="llm"), VOID["deadline"], VOID["deadline"]]


def test_a_judge_may_be_asked_inside_an_event_loop() -> None:
    async def inside() -> list[Grade]:
        return asked.decide([item("yes")])

    with serving(lambda said, n: by_answer(said)) as server:
        asked = judge(server)
        assert asyncio.run(inside()) == asked.decide([item("yes")]) == [Grade(True, by="llm")]


# breaker


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(endpoint_module, "time", self)

    def monotonic(self) -> float:
        return self.now


def test_the_breaker_trips_waits_and_tries_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, breaker = Clock(monkeypatch), Breaker(3, 10.0)
    for _ in range(2):
        breaker.failed(Trouble("judge_down", "", again=True))
    breaker.succeeded()
    for tripped in (False, False, True):
        assert not breaker.tripped
        breaker.failed(Trouble("judge_down", "", again=True))
        assert breaker.tripped is tripped and breaker.open is tripped
    clock.now += 9.9
    assert breaker.open
    clock.now += 0.2
    assert breaker.tripped and not breaker.open
    breaker.failed(Trouble("judge_refused", "who?", again=False))
    assert breaker.open and str(breaker.why) == "judge_refused: who?"
    clock.now += 10.1
    breaker.succeeded()
    assert not breaker.tripped and not breaker.open


def test_a_tripped_breaker_sends_nothing_then_one_request_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, healthy = Clock(monkeypatch), False

    def answer(said: dict[str, Any], number: int) -> Reply | str:
        return by_answer(said) if healthy else Reply("down", 503)

    with serving(answer) as server:
        asked = judge(server, breaker=4, breaker_seconds=10.0, retries=1, concurrency=2)
        many = [item(f"y{i}") for i in range(30)]
        assert asked.decide(many) == [VOID["down"]] * 30
        tripped_after = server.requests
        assert 4 <= tripped_after <= 5  # what was under way when the fourth failed
        assert asked.decide(many) == [VOID["down"]] * 30
        assert server.requests == tripped_after  # open: nothing goes out
        clock.now += 11
        assert asked.decide(many) == [VOID["down"]] * 30
        assert server.requests == tripped_after + 1  # half open: one goes out, and fails
        assert asked.decide(many) == [VOID["down"]] * 30
        assert server.requests == tripped_after + 1
        clock.now += 11
        healthy = True
        assert all(d.right for d in asked.decide(many))  # the others wait for it, and are judged
        assert server.requests == tripped_after + 31


def test_refusals_trip_the_breaker_under_their_own_name() -> None:
    with serving(lambda said, n: Reply("key revoked", 401)) as server:
        found = judge(server, breaker=2, concurrency=1).decide([item(f"y{i}") for i in range(9)])
        assert found == [VOID["refused"]] * 9 and server.requests == 2


# check


def test_the_check_asks_once_and_takes_any_verdict() -> None:
    for said in ("Correct", "Wrong"):
        with serving(lambda _, n, said=said: said) as server:
            judge(server).check()
            assert server.items == [{"question": PROBE.question, "accepted": ["Earth"], "answer": PROBE.answer}]


@pytest.mark.parametrize(
    ("reply", "found", "step"),
    [
        (Reply("model `m` does not exist", 404), "model `m` does not exist", "correct judge.url, judge.model"),
        (Reply("bad gateway", 502), "bad gateway", "ssp serve --judge"),
        (Reply("<think>Let me see"), "Let me see", "raise judge.max_tokens"),
        (Reply(raw=b"<html>\x1b[1mLog in"), "no chat completion: '<html>[1mLog in'", "correct judge.url"),
        (Reply("", headers={"Content-Encoding": "gzip"}), "incorrect header check", "ssp serve --judge"),
    ],
)
def test_the_check_says_what_to_do(reply: Reply, found: str, step: str) -> None:
    with serving(lambda said, n: reply) as server, pytest.raises(InputError) as error:
        judge(server, retries=0).check()
    assert found in str(error.value.found) and step in error.value.next_step


# the key


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:5000/v1", True),
        ("http://127.8.0.1/v1", True),
        ("http://[::1]:5000/v1", True),
        ("http://localhost:5000/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://localhost.example/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://0.0.0.0/v1", False),
    ],
)
def test_what_is_on_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) is here


def test_a_missing_or_broken_key_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = JudgeConfig(kind="llm", url="https://judge.example/v1", model="m", key_env=KEY)
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(InputError, match=f"{KEY} is not set"):
        Endpoint(cfg)
    monkeypatch.setenv(KEY, "SENTINEL\nX-Other: 1")
    with pytest.raises(InputError, match="one line") as error:
        Endpoint(cfg)
    assert "SENTINEL" not in str(error.value)
    Endpoint(JudgeConfig(kind="llm", url=cfg.url, model="m", key_env=""))
    monkeypatch.setenv(KEY, "SENTINEL\n")
    Endpoint(cfg)


def test_the_key_is_sent_and_seen_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A server that sends the key back, every kind of failure, all logging on."""
    monkeypatch.setenv(KEY, "SENTINEL")
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    replies: list[Reply | str] = [
        Reply("wrong key SENTINEL", 401),
        Reply("SENTINEL", 500),
        Reply("I see your SENTINEL"),
        Reply(raw=b"SENTINEL"),
        "Correct",
    ]
    said: list[str] = []
    with serving(lambda item, n: replies[min(n, len(replies)) - 1]) as server:
        cfg = settings(server, key_env=KEY, retries=0)
        asked = Endpoint(cfg, sleep=Sleeper())
        for _ in replies:
            (found,) = asked.ask(["{}" + '{"question": ""}'], lambda reply: None)
            assert isinstance(found, Fault)
            said += [str(found), repr(found), repr(found.__dict__), repr(found.__cause__), repr(found.__context__)]
        assert server.keys == ["Bearer SENTINEL"] * len(replies)
        replies[-1] = Reply("SENTINEL is not valid", 403)
        with pytest.raises(InputError) as error:
            LlmJudge(cfg, asked).check()
        said += [str(error.value), repr(error.value), repr(asked), repr(cfg), repr(vars(asked)["_breaker"])]
    with pytest.raises(Fault) as broken:
        raise asked.ask(["x"], lambda reply: None)[0]  # type: ignore[misc]
    said += traceback.format_exception(broken.value)
    assert [text for text in said if "SENTINEL" in text] == []
    assert any("***" in text for text in said)
    assert "SENTINEL" not in caplog.text and "judge_refused" in caplog.text


def test_decisions_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(VOID["down"])) == VOID["down"]
