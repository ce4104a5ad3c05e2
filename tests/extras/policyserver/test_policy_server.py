"""`ssp serve --policy`: clients that nobody here wrote (openai's SDK, the MCP client) ask a policy."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, cast

import httpx
import openai
import pytest
from mcp import Client, StdioServerParameters

from ssp.base.episode import SOLVER, Episode, Task
from ssp.base.errors import InputError
from ssp.data.readers import read_questions
from ssp.extras.policyserver import chat
from ssp.game import corpora
from ssp.game.rollout.chat import Refused
from ssp.learning.coldstart import ARTEFACT
from ssp.selfplay.scene import concrete
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build

WORDS = ["-m", "launch.serve", "--policy", str(ARTEFACT), "--temperature", "0", "--name", "ours"]


@pytest.fixture(scope="module")
def played() -> dict[str, Episode]:
    """What an evaluation makes of held-out questions."""
    cfg = concrete(load("quickstart", []))
    asked = [row.question for row in read_questions(cfg.data.eval[0].file)[:12]]
    play = build.player(cfg, SOLVER, ARTEFACT, corpora.search(cfg, [cfg.data.eval[0].corpus]), 0.0)
    tasks = [
        Task(f"{i}", f"{i}", SOLVER, 0, i, {"question": text}, cfg.data.eval[0].corpus) for i, text in enumerate(asked)
    ]
    return dict(zip(asked, play(tasks), strict=True))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with subprocess.Popen([sys.executable, *WORDS, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-3].removesuffix("/v1,")
        process.terminate()
        assert process.wait(30) == 130


@pytest.mark.ray
def test_openais_client_gets_what_an_evaluation_gets(server: str, played: dict[str, Episode]) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["ours", "policy"]

    def ask(question: str) -> Any:
        return client.chat.completions.create(model="ours", messages=[{"role": "user", "content": question}])

    with ThreadPoolExecutor(12) as pool:
        replies = dict(zip(played, pool.map(ask, played), strict=True))
    for question, episode in played.items():
        reply, said = replies[question], replies[question].model_extra["ssp"]
        assert reply.choices[0].message.content == (episode.final or "")
        assert (reply.choices[0].finish_reason == "stop") == (episode.final is not None)
        assert reply.usage.total_tokens == len(episode.log)
        assert [search["query"] for search in said["searches"]] == episode.queries
        shown = [document["id"] for search in said["searches"] for document in search["documents"]]
        assert shown == [document.id for document in episode.documents]
    with pytest.raises(openai.BadRequestError, match="policy knows"):
        ask("who is Ada Lovelace ?")
    for question, episode in islice(played.items(), 4):
        asked: Any = [{"role": "user", "content": question}]
        chunks = list(client.chat.completions.create(model="ours", messages=asked, stream=True))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert said == (episode.final or "") and chunks[-1].choices[0].finish_reason in ("stop", "length")
        short = client.chat.completions.create(model="ours", messages=asked, max_tokens=1, stop=["zzz"])
        assert (short.choices[0].message.content or "") in (episode.final or "").split(maxsplit=1)[:1] + [""]
    with pytest.raises(openai.NotFoundError, match=r"type client\.chat\.completions\.create"):
        client.responses.create(model="ours", input="who ?")
    a_turn = client.completions.create(model="policy", prompt=" ".join(islice(played, 1)), max_tokens=3, stream=True)
    assert [chunk.object for chunk in a_turn] == ["text_completion"]
    for sent in (b"{", b"[" * 10**5, b'"' + b"x" * 2**21):
        refused = httpx.post(f"{server}/v1/chat/completions", content=sent)
        assert refused.status_code == 400 and refused.json()["error"]["message"].startswith("a chat request ")


@pytest.mark.ray
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_it_is_a_tool_of_an_mcp_server(transport: str, server: str, played: dict[str, Episode]) -> None:
    question, episode = next((asked, found) for asked, found in played.items() if found.final)
    params = StdioServerParameters(command=sys.executable, args=[*WORDS, "--stdio"])

    async def ask() -> tuple[Any, Any, Any]:
        async with Client(f"{server}/mcp" if transport == "http" else params) as client:
            tools = (await client.list_tools()).tools
            wrong = await client.call_tool("answer", {"question": " "})
            return tools, await client.call_tool("answer", {"question": question}), wrong

    (tool,), found, wrong = asyncio.run(ask())
    assert tool.name == "answer" and list(tool.input_schema["properties"]) == ["question"]
    assert found.structured_content["answer"] == episode.final and not found.is_error
    assert [search["query"] for search in found.structured_content["searches"]] == episode.queries
    assert wrong.is_error and "a question has a word" in wrong.content[0].text


ASKED = [{"role": "user", "content": "who ?"}]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ([], "JSON object"),
        ({"messages": ASKED, "model": "gpt-5"}, "v1/models"),
        ({}, "messages is one"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "I"}, *ASKED]}, "take the model policy"),
        ({"messages": [*ASKED, {"role": "system", "content": "be short"}]}, "messages is one"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
        ({"messages": ASKED, "tools": [{"type": "function", "function": {"name": "f"}}]}, "take the model policy"),
        ({"messages": ASKED, "n": 5}, "n: not done here"),
        ({"messages": ASKED, "n": True}, "n: not done here"),
        ({"messages": ASKED, "logit_bias": {"1": 2}, "echo": True}, "logit_bias, echo: not done here"),
        ({"messages": ASKED, "response_format": {"type": "json_object"}}, "response_format: not done here"),
        ({"messages": ASKED, "top_p": 0.5, "top_k": 3}, "top_k=3, top_p=0.5"),
        ({"messages": ASKED, "reasoning_effort": "low"}, "reasoning_effort=low"),
        ({"messages": ASKED, "max_tokens": -1}, "max_tokens is a number"),
        ({"messages": ASKED, "stop": [1]}, "stop is a text"),
        ({"messages": ASKED, "temperature": 3}, "temperature is 0 or from"),
        ({"messages": ASKED, "temperature": 1e-9}, "temperature is 0 or from"),
        *(({"messages": ASKED, "seed": seed}, "seed whole") for seed in ("x", [], True, 1.0)),
        ({"messages": ASKED, "temperature": True}, "temperature is 0 or from"),
    ],
)
def test_what_cannot_be_done_is_refused(body: Any, rule: str) -> None:
    with pytest.raises((InputError, Refused), match=rule):
        asyncio.run(chat._reply(cast(Any, None), "m", "chat/completions", body))


def test_half_a_request_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    routes: dict[str, Any] = {}

    class Server:
        def custom_route(self, path: str, methods: list[str]) -> Any:
            return lambda function: routes.setdefault(path, function)

    class Half:
        async def stream(self) -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.sleep(60)

    monkeypatch.setattr(chat, "BODY_SECONDS", 0.05)
    chat.routes(cast(Any, Server()), cast(Any, None), "m")
    reply = asyncio.run(routes["/v1/chat/completions"](Half()))
    assert reply.status_code == 408 and "arrives within 0.05 s" in reply.body.decode()


def test_a_request_may_name_temperature_and_seed() -> None:
    assert chat.sampling({"temperature": 0.5, "seed": 3, "top_p": 1, "top_k": -1, "presence_penalty": 0}) == (0.5, 3)
    assert chat.sampling({"temperature": None, "min_p": 0.0}) == (None, 0)


@pytest.mark.parametrize(
    "more",
    [
        {"stream": True, "stream_options": {"include_usage": True}, "user": "me"},
        {
            "n": 1,
            "top_p": 1,
            "tools": [],
            "tool_choice": "none",
            "response_format": {"type": "text"},
            "logprobs": False,
        },
        {"max_tokens": 8, "max_completion_tokens": None, "stop": ["x"], "parallel_tool_calls": True, "logit_bias": {}},
    ],
)
def test_what_asks_for_nothing_is_taken(more: dict[str, Any]) -> None:
    assert chat.question({"model": "m", "messages": ASKED, **more}, "m") == "who ?"


def test_the_systems_words_stand_before_the_question() -> None:
    said = [{"role": "system", "content": "be short"}, {"role": "developer", "content": ""}]
    asked = [{"role": "user", "content": [{"type": "text", "text": "who "}, {"type": "text", "text": "?"}]}]
    assert chat.question({"model": "m", "messages": [*said, *asked]}, "m") == "be short\n\nwho ?"
