"""The LLM judge over a real loopback server: retries, cache, bounds, causes, and where the key goes."""

from __future__ import annotations

import json
import logging
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from fakejudge import HANG, FakeJudge, Reply, serving

from ssp.base import services
from ssp.base.episode import Grade
from ssp.base.errors import Fault, InputError
from ssp.base.services import JUDGE_KEY, is_loopback
from ssp.config.schema import Config, JudgeConfig
from ssp.game.judge import AnswerJudge, Item
from ssp.game.judge.endpoint import Endpoint
from ssp.game.judge.judges import PROBE, LlmJudge
from ssp.selfplay.workers import build
from tests.blocks import made


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, none of which is taken."""
    pauses, longer = [], services.pause

    def pause(*args: Any) -> float:
        pauses.append(longer(*args))
        return 0.0

    monkeypatch.setattr(services, "pause", pause)
    return pauses


def settings(server: FakeJudge, **changes: Any) -> JudgeConfig:
    base = {"kind": "llm", "url": server.url, "model": "m", "timeout": 5.0}
    return made(JudgeConfig, **{**base, **changes})


def judge(server: FakeJudge, seconds: float = 60.0, **changes: Any) -> LlmJudge:
    cfg = settings(server, **changes)
    return LlmJudge(cfg, Endpoint(cfg, seconds))


def item(answer: str, question: str = "who ?") -> Item:
    return Item(question, ("pota",), answer)


def by_answer(said: dict[str, Any]) -> str:
    return {"y": "Correct", "n": "Wrong."}.get(said["answer"][0], "I would say that it depends")


VOID = {
    cause: Grade(None, void_cause=f"judge_{cause}", by="llm") for cause in ("down", "refused", "format", "deadline")
}


@pytest.mark.covers("RS-12")
def test_right_wrong_garbage_and_a_time_out_over_all_items(pauses: list[float]) -> None:
    """Failures stay among the items; 5 tries each by default."""

    def answer(said: dict[str, Any], number: int) -> str:
        return HANG if said["answer"] == "late" else by_answer(said)

    with serving(answer) as server:
        found = judge(server, retries=4).decide([item(answer) for answer in ("yes", "no", "hm")])
        tries = [said["answer"] for said in server.items]
        found += judge(server, retries=4, timeout=0.2).decide([item("late")])
    assert found == [Grade(True, by="llm"), Grade(False, by="llm"), VOID["format"], VOID["down"]]
    assert {answer: tries.count(answer) for answer in tries} == {"yes": 1, "no": 1, "hm": 5}
    assert pauses == [0.5, 1.0, 2.0, 4.0]


def test_what_is_sent() -> None:
    with serving(lambda said, n: "Correct") as server:
        cfg = Config(judge=settings(server))
        assert build.judge(cfg).decide([item("yes"), item("Pota"), item("")])[0].right is True
        (body,) = server.bodies
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 16)
    assert [m["role"] for m in body["messages"]] == ["user"] and server.keys == [None]
    assert server.items == [{"question": "who ?", "accepted": ["pota"], "answer": "yes"}]


@pytest.mark.parametrize(("block", "most"), [({"format": "json"}, 256), ({"format": "thought"}, 4096)])
def test_room_for_a_judge_that_thinks(block: dict[str, Any], most: int) -> None:
    with serving(lambda said, n: "Correct") as server:
        build.judge(Config(judge=settings(server, **block))).decide([item("yes")])
        assert server.bodies[0]["max_tokens"] == most


@pytest.mark.covers("RS-12")
def test_the_cache_saves_the_second_request() -> None:
    with serving(lambda said, n: by_answer(said)) as server:
        asked = build.judge(Config(judge=settings(server)))
        for _ in range(3):
            assert [d.right for d in asked.decide([item("yes"), item("yes!"), item("no")])] == [True, True, False]
        assert server.requests == 2


@pytest.mark.parametrize(
    ("status", "cause", "requests"),
    [
        *((status, "down", 4) for status in (408, 429, 500, 503)),
        *((status, "refused", 1) for status in (400, 401, 404)),
    ],
)
def test_trouble_of_the_service_is_tried_again_and_a_refusal_is_not(status: int, cause: str, requests: int) -> None:
    with serving(lambda said, n: Reply("said", status)) as server:
        assert judge(server, retries=3).decide([item("yes")]) == [VOID[cause]]
        assert server.requests == requests


def test_a_retry_that_helps() -> None:
    replies = [Reply("", 503), Reply(raw=b"<html>"), Reply("Incorrect, I think"), Reply("Wrong")]
    with serving(lambda said, n: replies[n - 1]) as server:
        assert judge(server).decide([item("yes")]) == [Grade(False, by="llm")]
        assert server.requests == 4


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[" * 200_000,
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": ["Correct"]}}]}',
        b"<html>Correct</html>",
        json.dumps({"choices": [{"message": {"content": "Correct " * 150_000}}]}).encode(),
    ],
)
def test_a_body_of_another_kind_is_a_format_failure(raw: bytes) -> None:
    with serving(lambda said, n: Reply(raw=raw)) as server:
        assert judge(server, retries=1).decide([item("yes")]) == [VOID["format"]]
        assert server.requests == 2


def test_after_failures_in_a_row_the_rest_of_a_batch_is_not_sent() -> None:
    status = 503
    with serving(lambda said, n: Reply("Correct", status)) as server:
        asked, many = judge(server, retries=1, concurrency=1), [item(f"y{i}") for i in range(30)]
        assert asked.decide(many) == [VOID["down"]] * 30
        assert server.requests == 16
        status = 200
        assert all(d.right for d in asked.decide(many))


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
        (Reply("<think>Let me see"), "Let me see", "judge.format=thought"),
        (Reply(raw=b"<html>\x1b[1mLog in"), "no chat completion: '<html>[1mLog in'", "correct judge.url"),
    ],
)
def test_the_check_says_what_to_do(reply: Reply, found: str, step: str) -> None:
    with serving(lambda said, n: reply) as server, pytest.raises(InputError) as error:
        judge(server, retries=0).check()
    assert found in str(error.value.found) and step in error.value.next_step


# the key


def test_what_is_on_this_machine() -> None:
    here = ["http://127.0.0.1:5000/v1", "http://127.8.0.1/v1", "http://[::1]:5000/v1", "http://localhost:5000/v1"]
    there = ["https://api.openai.com/v1", "http://localhost.example/v1", "http://10.0.0.1/v1", "http://0.0.0.0/v1"]
    assert [is_loopback(url) for url in here + there] == [True] * 4 + [False] * 4


def test_a_broken_key_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = JudgeConfig(kind="llm", url="https://judge.example/v1", model="m")
    monkeypatch.setenv(JUDGE_KEY, "SENTINEL\nX-Other: 1")
    with pytest.raises(InputError, match="one line") as error:
        Endpoint(cfg)
    assert "SENTINEL" not in str(error.value)
    monkeypatch.setenv(JUDGE_KEY, "SENTINEL\n")
    Endpoint(cfg)


def test_the_key_is_sent_and_seen_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that sends the key back, every kind of failure, all logging on."""
    monkeypatch.setenv(JUDGE_KEY, "SENTINEL")
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
        cfg = settings(server, retries=0)
        asked = Endpoint(cfg)
        for _ in replies:
            (found,) = asked.ask(["{}" + '{"question": ""}'], lambda reply: None)
            assert isinstance(found, Fault)
            said += [str(found), repr(found), repr(found.__dict__), repr(found.__cause__), repr(found.__context__)]
        assert server.keys == ["Bearer SENTINEL"] * len(replies)
        replies[-1] = Reply("SENTINEL is not valid", 403)
        with pytest.raises(InputError) as error:
            LlmJudge(cfg, asked).check()
        said += [str(error.value), repr(error.value), repr(asked), repr(cfg)]
    with pytest.raises(Fault) as broken:
        raise asked.ask(["x"], lambda reply: None)[0]  # type: ignore[misc]
    said += traceback.format_exception(broken.value)
    assert [text for text in said if "SENTINEL" in text] == []
    assert any("***" in text for text in said)
    assert "SENTINEL" not in caplog.text and "judge_refused" in caplog.text


@pytest.mark.covers("U18")
def test_scores_by_a_rubric(tmp_path: Path) -> None:
    """From 0.5 on an answer is right; what matches exactly is 1 and asks nobody; a reply that is no score is no grade."""
    (tmp_path / "rubric.txt").write_text("Says the year.")

    def answer(said: dict[str, Any], number: int) -> str:
        scores = {"in 1990": 0.75, "lately": 0.25}
        return json.dumps({"rationale": "so", "score": scores[said["answer"]]}) if said["answer"] in scores else "0.9"

    with serving(answer) as server:
        further = judge(server, format=str(tmp_path / "rubric.txt"), retries=0)
        asked = [
            Item("when ?", ("the year 1990",), said, "Be brief.")
            for said in ("in 1990", "lately", "hm", "The year 1990!")
        ]
        found = AnswerJudge(further, 10).decide(asked)
        texts = [body["messages"][-1]["content"] for body in server.bodies]
    assert found == [
        Grade(True, by="llm", score=0.75),
        Grade(False, by="llm", score=0.25),
        VOID["format"],
        Grade(True),
    ]
    assert len(texts) == 3 and all("Says the year." in text and "Be brief." in text for text in texts)
    with pytest.raises(InputError, match="or the file of a rubric"):
        judge(server, format=str(tmp_path / "nowhere.txt"))
