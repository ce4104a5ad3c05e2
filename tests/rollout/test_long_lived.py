"""A program that plays many episodes (`serve:PROGRAM`), and the role's tools over MCP at an episode's endpoint."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripts import LIMITS, Books, encode, tasks
from test_agents import CHAT, TOKENIZER, playing

from ssp import engines
from ssp.base.episode import Episode, Outcome, Task
from ssp.config.role import EngineConfig, SimulatedConfig
from ssp.game.rollout import Settings, agents, rollout
from ssp.game.rollout.tools import Tools, function

pytest.importorskip("openai")

HEAD = """
import json, os, sys, threading, time, urllib.request
def ask(task, text):
    body = {"model": task["model"], "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(task["base_url"] + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + task["api_key"], "Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
def say(task, **reply):
    print(json.dumps({"id": task["id"], **reply}))
print("a library prints what it likes")
open("starts", "a").write(f"{os.getpid()}\\n")
"""
SERIAL = "for line in sys.stdin:\n    task = json.loads(line)\n"
ANSWERS = (
    SERIAL + "    say(task, answer=ask(task, task['question']) + ' ' + task['row']['id'] + ' ' + str(os.getpid()))\n"
)
ASIDE = """
def play(task):
    time.sleep(0.3)
    say(task, answer=ask(task, task["question"]) + " " + task["row"]["id"])
for line in sys.stdin:
    threading.Thread(target=play, args=(json.loads(line),)).start()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(folder: Path, body: str, seconds: float = 60.0) -> Any:
    (folder / "agent.py").write_text(HEAD + body)
    return agents.find(f"serve:{sys.executable} agent.py", lambda _: None, seconds)


def played(agent: Any, asked: list[Task]) -> list[Episode]:
    engine = engines.acted(
        EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)),
        lambda *_: encode(TOKENIZER, "Paris<|im_end|>"),
    )
    return rollout(engine, CHAT, Books(), asked, Settings(LIMITS, 0.0, 3, agent=agent))[0]


def starts(folder: Path) -> list[str]:
    return (folder / "starts").read_text().split()


def test_one_program_plays_all_episodes_of_a_player_one_after_another(here: Path) -> None:
    agent = program(here, ANSWERS)
    episodes = played(agent, tasks(4)) + played(agent, tasks(3))
    (pid,) = starts(here)
    assert [episode.final for episode in episodes] == [f"Paris g{i} {pid}" for i in (0, 1, 2, 3, 0, 1, 2)]
    assert {(e.stopped, e.outcome, len(e.log.views())) for e in episodes} == {("final", None, 1)}
    assert all(episode.text.count("<|im_start|>user") == 1 for episode in episodes)


def test_episodes_are_played_side_by_side(here: Path) -> None:
    agent = program(here, ASIDE)
    played(agent, tasks(1))  # it has started
    began = time.monotonic()
    episodes = played(agent, tasks(8))
    assert time.monotonic() - began < 8 * 0.3 and len(starts(here)) == 1
    assert [episode.final for episode in episodes] == [f"Paris g{i}" for i in range(8)]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("answer='x', reward=0.5", ("x", [0.5], "final", "")),
        ("answer='x', reward=None", ("x", [], "final", "")),
        ("answer=7", ("7", [], "final", "")),
        ("answer=None", (None, [], "malformed", "")),
        ("mistake='it calls what is not there'", (None, [], "mistake", "")),
        ("error='no network'", (None, [], "fault", "agent_failed")),
        ("answer=['x']", (None, [], "fault", "agent_result")),
        ("answer='x', reward='much'", (None, [], "fault", "agent_result")),
        ("final='x'", (None, [], "fault", "agent_result")),
    ],
)
def test_a_line_is_an_answer_a_mistake_or_an_error(reply: str, expected: Any, here: Path) -> None:
    (episode,) = played(program(here, SERIAL + f"    ask(task, 'x')\n    say(task, {reply})\n"), tasks(1))
    assert (episode.final, episode.earned, episode.stopped, episode.cause) == expected
    assert not expected[3] or episode.outcome is Outcome.VOID


CRASHES = """
    said = ask(task, task["question"])
    if task["row"]["id"] == "g1" and not os.path.exists("crashed"):
        open("crashed", "w").close()
        sys.exit("the last straw")
    say(task, answer=f"{said} {task['row']['id']}")
"""


def test_a_crash_voids_what_was_being_played_and_the_next_program_plays_the_rest(here: Path) -> None:
    episodes = played(program(here, SERIAL + CRASHES), tasks(4))
    assert [episode.final for episode in episodes] == ["Paris g0", None, "Paris g2", "Paris g3"]
    assert [episode.cause for episode in episodes] == ["", "agent_failed", "", ""] and len(starts(here)) == 2
    assert "the last straw" in episodes[1].detail and "ended with code 1" in episodes[1].detail


def test_a_program_that_cannot_start_voids_all_and_does_not_start_for_ever(here: Path) -> None:
    episodes = played(program(here, "import no_such_module\n"), tasks(5))
    assert {(e.outcome, e.cause) for e in episodes} == {(Outcome.VOID, "agent_failed")} and len(starts(here)) == 1
    assert all("no_such_module" in episode.detail for episode in episodes)


LATE = """
    if not os.path.exists("late"):
        open("late", "w").close()
        time.sleep(60)
    say(task, answer=ask(task, task["question"]))
"""
TWICE = """
    said = ask(task, task["question"])
    say(task, answer=f"{said} {task['question']}")
    say(task, answer="of the one before")
    print(json.dumps({"id": "77", "answer": "of nobody"}), end=" ")
"""


def test_a_late_program_is_ended_and_the_next_episode_has_a_fresh_one(here: Path) -> None:
    agent = program(here, SERIAL + LATE, seconds=4.0)
    (late,) = played(agent, tasks(1))
    assert (late.outcome, late.cause) == (Outcome.VOID, "agent_deadline")
    (fresh,) = played(agent, tasks(1))
    assert fresh.final == "Paris" and len(starts(here)) == 2


def test_no_line_is_taken_for_the_answer_of_another_episode(here: Path) -> None:
    agent = program(here, SERIAL + TWICE)
    for name in ("a", "b", "c"):
        (episode,) = played(agent, [Task("ask-0", "g", "solver", 0, 0, {"question": name})])
        assert episode.final == f"Paris {name}"


async def over_mcp(question: str, client: Any, model: str, tools: Any) -> str:
    """An agent whose framework lists and calls the role's tools over MCP."""
    from mcp import Client

    await client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}])
    told = []
    for mode in ("auto", "legacy"):
        async with Client(tools.mcp, mode=mode) as mcp:
            listed = (await mcp.list_tools()).tools
            told.append(",".join(tool.name for tool in listed))
            assert listed[0].input_schema["properties"]["query"]["type"] == "string"
            found = await mcp.call_tool("search", {"query": "city"})
            assert not found.is_error
            read, again = await asyncio.gather(*(mcp.call_tool("read", {"document": str(n)}) for n in (1, 9)))
            told += [found.content[0].text.splitlines()[0], f"{'capital' in read.content[0].text}"]
            assert "no search has found" in again.content[0].text and not again.is_error
            assert (await mcp.call_tool("wipe", {})).content[0].text == "there is no tool wipe"
    return " ".join(told)


def test_the_roles_tools_over_mcp_are_in_the_episodes_record() -> None:
    pytest.importorskip("mcp")
    tools = Tools(reads=True)
    renderer = CHAT.__class__(CHAT.protocol.offering(tools.offers), TOKENIZER)
    episodes = playing(over_mcp, ["ok<|im_end|>"], 3, renderer=renderer, tools=tools)
    for episode in episodes:
        assert (episode.outcome, episode.cause, episode.detail) == (None, "", "")
        assert episode.final and episode.final.count("search,read") == 2
        assert sorted(episode.tools) == ["read"] * 4 + ["search"] * 2
        assert episode.queries.count("city") == 2 and len(episode.hits) == 6


def test_a_tool_that_fails_over_mcp_voids_its_episode_alone() -> None:
    pytest.importorskip("mcp")
    books = Books()

    async def asks(question: str, client: Any, model: str, tools: Any) -> str:
        from mcp import Client

        await client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}])
        books.down = tools.episode.id == "t1"
        async with Client(tools.mcp) as mcp:
            result = await mcp.call_tool("search", {"query": "city"})
        return f"{result.is_error} {result.content[0].text}"

    (good,) = playing(asks, ["ok<|im_end|>"], books=books)
    assert good.final and good.final.startswith("False") and good.queries == ["city"]
    books.down = "none"  # type: ignore[assignment]
    bad = playing(asks, ["ok<|im_end|>"], 2, books=books)[1]
    assert (bad.outcome, bad.cause) == (Outcome.VOID, "retriever_down")


def test_a_call_over_mcp_has_its_tools_own_deadline() -> None:
    """Long before that of the episode, which it voids."""
    pytest.importorskip("mcp")
    said: list[str] = []

    def slow(word: str) -> str:
        time.sleep(5)
        return word

    slow.seconds = 0.2  # type: ignore[attr-defined]

    async def asks(question: str, client: Any, model: str, tools: Any) -> str:
        from mcp import Client

        await client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}])
        async with Client(tools.mcp) as mcp:
            began = time.monotonic()
            result = await mcp.call_tool("slow", {"word": "sea"})
            said.append(f"{result.is_error} {result.content[0].text} {time.monotonic() - began < 4}")
        return "x"

    tools = Tools([function(slow, "here")])
    renderer = CHAT.__class__(CHAT.protocol.offering(tools.offers), TOKENIZER)
    (late,) = playing(asks, ["ok<|im_end|>"], renderer=renderer, tools=tools)
    assert said == ["True tool_deadline True"]
    assert (late.outcome, late.cause, late.detail) == (Outcome.VOID, "tool_deadline", "slow did not answer in 0.2 s")


def test_the_address_of_an_episode_that_is_over_answers_nothing() -> None:
    import httpx

    kept = []

    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        kept.append(tools.mcp)
        await client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}])
        async with httpx.AsyncClient() as plain:
            assert (await plain.get(tools.mcp)).status_code == 405
            assert (await plain.post(tools.mcp, content="{")).status_code == 400
        return "x"

    assert playing(solve, ["ok<|im_end|>"])[0].final == "x"
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert httpx.post(kept[0], content=body).status_code == 404
