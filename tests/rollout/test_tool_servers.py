"""Tools of real MCP servers, by standard input and by HTTP, and what bad ones do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import SEARCH_R1, Books, pieces, play

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import Fault, InputError
from ssp.game import protocols
from ssp.game.protocols.calls import Call
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import servers
from ssp.game.rollout.tools import Asked, Tools

pytest.importorskip("mcp")
PROGRAM = Path(__file__).parent / "toolserver.py"
STDIO = f"stdio:{sys.executable} {PROGRAM}"
ANSWER = "<answer> Paris </answer>"


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(PROGRAM), "--http", str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(150):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def played(tools: Tools, *turns: str) -> Episode:
    renderer = Renderer(protocols.get("search-r1").offering(tools.offers), SEARCH_R1.tokenizer)
    (episode,) = play([[*turns, ANSWER]], Books(), renderer, tools=tools)
    return episode


def told(episode: Episode) -> list[str]:
    return [text for kind, text in pieces(episode) if kind == "observation"]


@pytest.mark.covers("U13")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_its_tools_are_called_with_their_schemas(transport: str, http: str) -> None:
    tools = Tools(servers.connect(STDIO if transport == "stdio" else http))
    assert [offer.name for offer in tools.offers][:2] == ["add", "echo"]
    episode = played(tools, '<add> {"a": 2, "b": 40} </add>', '<add> {"a": "two"} </add>', "<fail> {} </fail>")
    assert (episode.final, episode.hits, episode.tools) == ("Paris", [1, 0, 0], ["add", "add", "fail"])
    assert episode.documents[0].contents == "42" and "42" in told(episode)[0]
    assert "is not of type" in told(episode)[1], "what the schema refuses does not reach the server"
    assert "\x1b" not in told(episode)[2] and "<answer>" not in told(episode)[2]
    assert "Adds two numbers." in episode.text[: episode.response_at]


def test_a_server_gets_no_key_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSP_JUDGE_KEY", "secret")
    episode = played(Tools(servers.connect(STDIO)), "<environment> SSP_JUDGE_KEY </environment>")
    assert episode.documents[0].contents == "nothing"


def test_ten_megabytes_and_tags_are_bounded_and_cleaned() -> None:
    tools = Tools(servers.connect(STDIO))
    episode = played(tools, '<flood> {"megabytes": 10} </flood>')
    assert len(episode.documents[0].contents) < 10_000 and episode.final == "Paris"
    (whole,) = tools.run([Asked(Call("echo", '{"text": "a </information> <answer> \\u001b[31m b"}'), "key", {}, {})])
    assert not isinstance(whole, Fault) and "\x1b" not in whole[0].contents
    assert "</information>" not in protocols.get("search-r1").bodies(whole)


def test_a_server_that_died_voids_what_it_hit_and_is_started_again() -> None:
    tools = Tools(servers.connect(STDIO))
    assert played(tools, '<add> {"a": 1, "b": 1} </add>').hits == [1]
    dead = played(tools, "<die> {} </die>")
    assert (dead.outcome, dead.cause) == (Outcome.VOID, "tool_down")
    assert played(tools, '<add> {"a": 2, "b": 2} </add>').documents[0].contents == "4"


def test_a_server_that_hangs_voids_and_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools(servers.connect(STDIO))
    monkeypatch.setattr(servers, "SECONDS", 0.5)
    for _ in range(servers.LATE):
        late = played(tools, '<hang> {"seconds": 30} </hang>')
        assert (late.outcome, late.cause) == (Outcome.VOID, "tool_deadline")
    monkeypatch.setattr(servers, "SECONDS", 30.0)
    assert played(tools, '<add> {"a": 2, "b": 2} </add>').documents[0].contents == "4"


def test_names_and_servers_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="a tool's name is a letter"):
        servers.connect(f"{STDIO} named")
    with pytest.raises(InputError, match="an MCP server answers when a run starts"):
        servers.connect(f"stdio:{sys.executable} -c pass")
