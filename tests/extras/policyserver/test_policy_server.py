"""`ssp serve --policy`: clients that nobody here wrote (openai's SDK, the MCP client) ask a policy."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    assert [model.id for model in client.models.list()] == ["ours"]

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
    with pytest.raises(openai.BadRequestError, match="v1/models"):
        client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": next(iter(played))}])
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
        ({}, "messages is one"),
        ({"messages": [{"role": "system", "content": "be short"}, *ASKED]}, "messages is one"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages is one"),
        ({"messages": ASKED, "n": 5}, "n is 1"),
        ({"messages": ASKED, "stream": True}, "stream is false"),
        ({"messages": ASKED, "tools": [], "logit_bias": {}}, "logit_bias, tools"),
        ({"messages": ASKED, "temperature": 3}, "temperature is 0 or from"),
        ({"messages": ASKED, "temperature": 1e-9}, "temperature is 0 or from"),
        *(({"messages": ASKED, "seed": seed}, "seed whole") for seed in ("x", [], True, 1.0)),
        ({"messages": ASKED, "temperature": True}, "temperature is 0 or from"),
        ({"messages": ASKED, "n": True}, "n is 1"),
    ],
)
def test_what_cannot_be_done_is_refused(body: Any, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        chat.question(body)


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
    assert chat.question({"messages": ASKED, "temperature": 0.5, "seed": 3, "n": 1}) == ("who ?", 0.5, 3)
    assert chat.question({"messages": ASKED, "stream": False, "user": "me"}) == ("who ?", None, 0)
