"""What clients of OpenAI's API send and read at an episode's endpoint, byte for byte, without those clients; and what an agent
returns beside its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import families
import httpx
import pytest
from scripts import Books, encode, limits, pieces

from ssp import engines
from ssp.base.episode import SOLVER, Episode, Grade, Outcome, Task
from ssp.base.errors import InputError
from ssp.config.role import EngineConfig, RoleConfig, SimulatedConfig
from ssp.data.readers import read_questions
from ssp.data.told import told
from ssp.game import protocols
from ssp.game.evaluation import make_tasks
from ssp.game.protocols.renderer import Renderer
from ssp.game.rewards.score import graded
from ssp.game.rollout import Settings, agents, rollout
from ssp.record.episodes import read, write

pytest.importorskip("openai")
QWEN = families.qwen()
CHAT = Renderer(protocols.get("chat-tools"), QWEN)
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "city"}}\n</tool_call><|im_end|>'
ASKED = {"model": "policy", "messages": [{"role": "user", "content": "Which city?"}]}
TASK = Task("t0", "g0", SOLVER, 0, 1, {"question": "Which city is it?"})


def playing(solve: Any, *turns: str, task: Task = TASK, said: Path | None = None, **room: int) -> Episode:
    """The episode of an agent with a policy that writes `turns`, whatever it is asked."""
    script: Iterator[str] = iter([*turns, *turns[-1:] * 50])
    engine = engines.acted(
        EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)),
        lambda history, seed, turn: encode(QWEN, next(script)),
    )
    agent = agents.find(solve if isinstance(solve, str) else "here", lambda place: solve, 30.0)
    most = limits(**{"searches": 30, "turn_tokens": 200, "total_tokens": 6000, **room})
    (episode,), _ = rollout(engine, CHAT, Books(), [task], Settings(most, 0.0, 3, agent=agent, said=said))
    return episode


def spoken(talk: Callable[[httpx.AsyncClient], Any], *turns: str) -> Episode:
    """The episode of an agent that speaks HTTP alone."""

    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        async with httpx.AsyncClient(base_url=tools.url, headers={"Authorization": f"Bearer {tools.key}"}) as plain:
            return str(await talk(plain))

    return playing(solve, *turns)


def streamed(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which ends as it should."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") and "\n" not in line for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def test_a_turn_is_streamed_as_it_is_told_whole() -> None:
    async def talk(http: httpx.AsyncClient) -> str:
        tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
        body = {**ASKED, "tools": tools, "stream": True, "stream_options": {"include_usage": True}}
        reply = await http.post("/chat/completions", json=body)
        assert reply.headers["content-type"].startswith("text/event-stream")
        turn, end, usage = streamed(reply.text)
        assert {one["object"] for one in (turn, end, usage)} == {"chat.completion.chunk"} and turn["id"] == usage["id"]
        (choice,) = turn["choices"]
        (call,) = choice["delta"]["tool_calls"]
        assert choice["finish_reason"] is None and choice["delta"]["role"] == "assistant"
        assert (call["index"], call["function"]) == (0, {"name": "search", "arguments": '{"query": "city"}'})
        assert end["choices"][0] == {"index": 0, "logprobs": None, "delta": {}, "finish_reason": "tool_calls"}
        assert usage["choices"] == [] and usage["usage"]["completion_tokens"] > 0
        reply = await http.post("/completions", json={"model": "policy", "prompt": ["Q"], "stream": True})
        (text,) = streamed(reply.text)
        assert text["object"] == "text_completion" and text["choices"][0]["finish_reason"] == "stop"
        refused = await http.post("/chat/completions", json={**ASKED, "stream": True, "n": 2})
        assert refused.status_code == 400 and refused.json()["error"]["message"].startswith("n: ")
        return str(text["choices"][0]["text"])

    episode = spoken(talk, CALL, "Paris<|im_end|>")
    assert (episode.final, len(episode.log.views())) == ("Paris", 2)


def test_what_else_a_client_asks_of_the_endpoint() -> None:
    async def talk(http: httpx.AsyncClient) -> str:
        listed = (await http.get("/models")).json()
        assert [model["id"] for model in listed["data"]] == ["policy"] and listed["object"] == "list"
        assert (await http.get("/models/policy")).json()["object"] == "model"
        for path, said in (("/responses", "type client.chat.completions.create"), ("/embeddings", "not spoken here")):
            gone = await http.post(path, json={"model": "policy", "input": "x"})
            assert gone.status_code == 404 and said in gone.json()["error"]["message"]
        closed = await http.get("/models", headers={"Authorization": "Bearer other"})
        assert closed.status_code == 404
        await http.post("/chat/completions/", json=ASKED)
        return "x"

    assert spoken(talk, "a<|im_end|>").final == "x"


NEUTRAL = {"n": 1, "best_of": 1, "top_p": 1, "tools": [], "response_format": {"type": "text"}, "logit_bias": {}, "seed": 3,
           "logprobs": False, "frequency_penalty": 0, "max_tokens": None, "stop": None, "modalities": ["text"]}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "text", "reason"),
    [
        ({}, "one two three", "stop"),
        (NEUTRAL, "one two three", "stop"),
        ({"max_tokens": 2}, "one two three", "length"),
        ({"max_completion_tokens": 2}, "one two three", "length"),
        ({"stop": "two"}, "one ", "stop"),
        ({"stop": ["three", " two"]}, "one", "stop"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}, "one two three", "stop"),
    ],
)
def test_lengths_stops_and_neutral_values(more: dict[str, Any], text: str, reason: str) -> None:
    async def talk(http: httpx.AsyncClient) -> str:
        parts = [{"type": "text", "text": "Which "}, {"type": "text", "text": "city?"}]
        said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
        (choice,) = (await http.post("/chat/completions", json={**ASKED, "messages": said, **more})).json()["choices"]
        shown = choice["message"]["content"]
        assert (text.startswith(shown) and shown != text) if reason == "length" else shown == text
        assert choice["finish_reason"] == reason
        return "x"

    episode = spoken(talk, "one two three<|im_end|>")
    assert episode.final == "x" and "Be brief." in episode.text and "Which city?" in episode.text


THOUGHT = "<think>\nIt may be {}.\n</think>\n\n"


@pytest.mark.parametrize("returned", [True, False], ids=["given back", "left out"])
def test_thoughts_are_told_apart_and_stay_in_the_context_as_they_were_sampled(returned: bool) -> None:
    turns = [THOUGHT.format("Lyon") + CALL, THOUGHT.format("Nice") + CALL, THOUGHT.format("Paris") + "Paris<|im_end|>"]

    async def talk(http: httpx.AsyncClient) -> str:
        messages = [*ASKED["messages"]]
        tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
        for guess in ("Lyon", "Nice", "Paris"):
            body = {**ASKED, "messages": messages, "tools": tools}
            message = (await http.post("/chat/completions", json=body)).json()["choices"][0]["message"]
            assert message["reasoning_content"] == f"It may be {guess}." and "think" not in message["content"]
            if not returned:
                del message["reasoning_content"]
            messages += [message, {"role": "tool", "content": f"not {guess}"}]
        other = {"role": "assistant", "content": "Rome", "reasoning_content": "It may be Rome."}
        refused = await http.post("/chat/completions", json={**ASKED, "messages": [*messages, other]})
        assert refused.status_code == 400 and "did not write this" in refused.json()["error"]["message"]
        return str(messages[-2]["content"])

    episode = spoken(talk, *turns)
    assert (episode.final, len(episode.log.views())) == ("Paris", 1)
    assert [text for kind, text in pieces(episode, QWEN) if kind == "model"] == turns


@pytest.mark.parametrize(
    "turn", ["<think>\nLyon, or", "<think>\n\n</think>\n\nNice<|im_end|>", "a <think> b<|im_end|>"]
)
def test_thoughts_without_an_end_are_no_answer(turn: str) -> None:
    async def talk(http: httpx.AsyncClient) -> str:
        message = (await http.post("/chat/completions", json=ASKED)).json()["choices"][0]["message"]
        return f"{message['content']}|{message.get('reasoning_content')}"

    told = {"<think>\nL": "|Lyon, or", "<think>\n\n": "Nice|None", "a <think>": "a <think> b|None"}
    assert spoken(talk, turn).final == told[turn[:9]]


def returning(*answers: Any) -> Any:
    """An agent that asks for two turns and returns what it is told to."""

    async def solve(question: str, client: Any, model: str, tools: Any) -> Any:
        for number in range(2):
            await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": f"{question} {number}"}]
            )
        return answers if len(answers) > 1 else answers[0]

    return solve


@pytest.mark.parametrize(
    ("returned", "final", "earned"),
    [
        (("Paris", 0.25), "Paris", (0.25, ())),
        ((1990, 1), "1990", (1.0, ())),
        (("Paris", [0.5, -0.25]), "Paris", (0.25, (0.5, -0.25))),
        (("Paris", [0.5]), "Paris", (0.5, ())),
        (("Lyon", 0), "Lyon", (0.0, ())),
        ((None, -0.5), "", (-0.5, ())),
        ((" ", [0.5, -0.25]), "", (0.25, (0.5, -0.25))),
        (("Paris",), "Paris", (1.0, ())),
        (("Lyon",), "Lyon", (0.0, ())),
    ],
)
@pytest.mark.parametrize("reward", ["em", "ssp"])
def test_what_an_agent_says_that_it_earned(
    returned: Sequence[Any], final: str, earned: tuple[Any, ...], reward: str, tmp_path: Path
) -> None:
    write(tmp_path / "block.parquet", [playing(returning(*returned), "Paris<|im_end|>")])
    (episode,) = read(tmp_path / "block.parquet")
    grade = graded(RoleConfig(reward=reward), episode, ["Paris"], Grade(final == "Paris"))
    assert (episode.final, episode.stopped) == (final, "final") and (grade.reward, grade.turns) == earned


@pytest.mark.parametrize(
    "returned",
    [("Paris", "1"), ("Paris", float("nan")), ("Paris", True), ("Paris", [1.0, 2.0, 3.0]), ("Paris", []), ("a", "b", 1), ({}, 1.0)],
)  # fmt: skip
def test_a_reward_that_is_none_voids(returned: Any) -> None:
    episode = playing(returning(*returned), "Paris<|im_end|>")
    assert (episode.outcome, episode.cause, episode.earned) == (Outcome.VOID, "agent_result", [])


@pytest.mark.parametrize("answer", [None, "", " "])
def test_no_answer_and_no_reward_is_none_handed_in(answer: str | None) -> None:
    episode = playing(returning(answer), "Paris<|im_end|>")
    assert (episode.stopped, episode.outcome, episode.final) == ("malformed", None, None)


ROW = {"id": 7, "question": "Which city is it?", "answer": "Paris", "answer_aliases": ["Paname"], "hops": 2, "hint": "Paname",
       "extra_info": {"answer": "Paris", "country": "France"}, "contexts": ["The river Seine."]}  # fmt: skip


@pytest.mark.parametrize("golds", [False, True])
def test_an_agent_gets_the_questions_row(golds: bool, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []

    async def solve(question: str, client: Any, model: str, tools: Any, row: dict[str, Any]) -> str:
        rows.append(row)
        await client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}])
        return "x"

    if golds:
        solve.golds = True  # type: ignore[attr-defined]
    (tmp_path / "q.jsonl").write_text(json.dumps(ROW))
    file = tmp_path / "q.jsonl"
    questions = told(file, read_questions(file, source="mine"))
    (task,) = make_tasks(questions, 0, "train", "eval/q")
    assert playing(solve, "a<|im_end|>", task=task).final == "x"
    shown = {"id": "mine/7", "question": "Which city is it?", "hops": 2, "contexts": ["The river Seine."]}
    if golds:
        assert rows == [{**ROW, "id": "mine/7", "golds": ["Paris", "Paname"]}]
    else:
        assert rows == [{**shown, "hint": "", "extra_info": {"country": "France"}}]
    assert playing(solve, "a<|im_end|>").final == "x" and rows[1] == {"id": "g0", "question": "Which city is it?"}


def test_what_an_agent_may_see_is_yes_or_no() -> None:
    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        return ""

    solve.golds = "yes"  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="whether it may see"):
        agents.find("here", lambda place: solve, 1.0)


def test_an_agents_error_says_where_it_came_up_and_its_words_are_kept(tmp_path: Path) -> None:
    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        await client.responses.create(model=model, input=question)
        return ""

    log = tmp_path / "agents" / "block.log"
    episode = playing(solve, "a<|im_end|>", said=log)
    assert episode.cause == "agent_failed" and "type client.chat.completions.create" in episode.detail
    assert re.search(rf"\({re.escape(__file__)}, line \d+\)$", episode.detail)
    assert "t0:\nTraceback" in log.read_text()

    (tmp_path / "agent.sh").write_text("echo loading >&2\necho token=hunter2hunter2 >&2\nexit 3\n")
    playing(f"command:sh {tmp_path}/agent.sh", "a<|im_end|>", said=log)
    assert "t0:\nloading" in log.read_text()
