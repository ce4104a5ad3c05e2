"""The engine behind HTTP, against a completion server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from httpfakes import answering

from ssp.base.errors import Fault, InputError
from ssp.base.services import key_from
from ssp.engines.base import FreeEngine, Sampling, StopWords
from ssp.engines.endpoint import EndpointEngine

Reply = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


def told(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Counts on from the prompt's last id; ends at a stop id, or at max_tokens."""
    ids, stops = [], body.get("stop_token_ids", [])
    while len(ids) < body["max_tokens"] and not (ids and ids[-1] in stops):
        ids.append((ids or body["prompt"])[-1] + 1)
    reason = "stop" if ids and ids[-1] in stops else "length"
    logprobs = {"token_logprobs": [-0.5] * len(ids)}
    return 200, {"choices": [{"token_ids": ids, "logprobs": logprobs, "finish_reason": reason, "text": "x"}]}


class Server:
    """`reply` answers; what was asked, and with which keys."""

    def __init__(self) -> None:
        self.reply: Reply = told
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = ""

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(body)
        return self.reply(body)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with answering(made.answer, made.keys) as address:
        made.url = f"{address}/v1"
        yield made


def test_turns_carry_the_whole_context_and_the_sampled_ids(server: Server) -> None:
    engine = EndpointEngine(server.url, "m", key="SENTINEL")
    assert isinstance(engine, FreeEngine)
    words = StopWords(["</search>"], lambda ids: "")
    (slot,) = engine.open([5])
    first = engine.step([slot], [[1, 2]], Sampling(0.0, 8, (5,), words))[0]
    assert (first.ids, first.logprobs, first.stopped, first.version) == ([3, 4, 5], [-0.5] * 3, True, 0)
    second = engine.submit(slot, [20], Sampling(1.0, 2, (5,))).result()
    assert (second.ids, second.stopped) == ([21, 22], False)
    probe, one, two = server.asked
    assert probe["max_tokens"] == 1 and one["prompt"] == [1, 2] and two["prompt"] == [1, 2, 3, 4, 5, 20]
    assert one["stop"] == ["</search>"] and one["include_stop_str_in_output"] and one["stop_token_ids"] == [5]
    assert one["temperature"] == 0.0 and two["temperature"] == 1.0 and one["seed"] != two["seed"]
    assert one["top_p"] == 1.0 and one["top_k"] == -1 and one["repetition_penalty"] == 1.0, (
        "not the model's own defaults"
    )
    assert set(server.keys) == {"Bearer SENTINEL"}
    engine.close([slot])


def test_a_server_that_reads_its_tokens_otherwise_and_goes_on_is_cut_at_the_stop_string(server: Server) -> None:
    """As vLLM's does where its tokenizer class puts no space between two tokens, and ours does."""
    engine = EndpointEngine(server.url, "m")
    words = StopWords(["x y"], lambda ids: " ".join({4: "x", 5: "y"}.get(id_, "a") for id_ in ids))
    (slot,) = engine.open([5])
    turn = engine.step([slot], [[1, 2]], Sampling(1.0, 8, (), words))[0]
    assert (turn.ids, turn.logprobs, turn.stopped) == ([3, 4, 5], [-0.5] * 3, True)
    engine.step([slot], [[20]], Sampling(1.0, 2, (), words))
    assert server.asked[-1]["prompt"] == [1, 2, 3, 4, 5, 20]


def test_a_server_without_ids_or_model_is_refused_at_the_start(server: Server) -> None:
    server.reply = lambda body: (200, {"choices": [{"text": "x", "finish_reason": "stop"}]})
    with pytest.raises(InputError, match="token ids"):
        EndpointEngine(server.url, "m")
    server.reply = lambda body: (404, {"error": "no such model"})
    with pytest.raises(InputError, match="no such model"):
        EndpointEngine(server.url, "m")


def test_failures_are_faults_and_passing_ones_are_tried_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssp.base.services.time.sleep", lambda seconds: None)
    engine = EndpointEngine(server.url, "m", key="SENTINEL")
    fails = iter([503, 429])
    server.reply = lambda body: (status, {}) if (status := next(fails, 0)) else told(body)
    (slot,) = engine.open([0])
    assert engine.step([slot], [[1]], Sampling(0.0, 1, ()))[0].ids == [2]
    for reply, cause in (
        ((500, {}), "engine_down"),
        ((400, {"m": "too long"}), "engine_refused"),
        ((200, {}), "engine_refused"),
    ):
        server.reply = lambda body, reply=reply: reply
        with pytest.raises(Fault, match=cause) as caught:
            engine.step([slot], [[1]], Sampling(0.0, 1, ()))
        assert "SENTINEL" not in str(caught.value)
    with pytest.raises(InputError, match="its own"):
        engine.load({}, 1)


def choice(ids: object, logprobs: object) -> dict[str, Any]:
    return {"choices": [{"token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("ids", "logprobs"),
    [
        ([-1], {"token_logprobs": [0.0]}),
        ([10**12], {"token_logprobs": [0.0]}),
        ([5, 5, 5], {"token_logprobs": [0.0] * 3}),
        ([5], {"token_logprobs": [None]}),
        ([5], {"token_logprobs": [float("nan")]}),
        ([5], 3),
    ],
)
def test_an_answer_that_is_not_the_contract_is_a_fault(server: Server, ids: object, logprobs: object) -> None:
    """Ids that no tokenizer decodes, more tokens than were asked for, log-probs that are no numbers."""
    engine = EndpointEngine(server.url, "m")
    server.reply = lambda body: (200, choice(ids, logprobs))
    (slot,) = engine.open([0])
    with pytest.raises(Fault, match="engine_refused"):
        engine.step([slot], [[1]], Sampling(0.0, 2, ()))


def test_a_server_that_repeats_the_key_is_quoted_without_it(server: Server) -> None:
    server.reply = lambda body: (401, {"error": f"\x1b[1mno such key {server.keys[-1]}"})
    with pytest.raises(InputError, match=r"no such key Bearer \*\*\*") as caught:
        EndpointEngine(server.url, "m", key="SENTINEL")
    assert "SENTINEL" not in str(caught.value)


@pytest.mark.parametrize("value", ["SENTINEL\nX", "SENTINEL\x7f", "SENTINEL \xe9"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(InputError, match="one line of ASCII") as caught:
        key_from("SOME_KEY", "")
    assert "SENTINEL" not in str(caught.value)
    monkeypatch.setenv("SOME_KEY", "SENTINEL\r\n")
    assert key_from("SOME_KEY", "") == "SENTINEL"
    monkeypatch.delenv("SOME_KEY")
    assert key_from("SOME_KEY", "") == ""
    with pytest.raises(InputError, match="SOME_KEY"):
        key_from("SOME_KEY", "", needed=True)
