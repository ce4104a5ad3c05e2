"""Agents of a user's own in the loop's place: functions and programs that talk to an episode's endpoint."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import families
import httpx
import pytest
import torch
from scripts import LIMITS, Books, encode, limits, pieces, tasks
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssp import engines
from ssp.base.episode import Episode, Outcome
from ssp.base.errors import InputError, InvariantError
from ssp.base.tokenlog import Kind
from ssp.config import own
from ssp.config.role import EngineConfig, SimulatedConfig
from ssp.engines.torch_engine import ContinuousEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, agents, rollout
from ssp.game.rollout.tools import Tools
from ssp.record.episodes import write
from ssp.selfplay.settings import load

pytest.importorskip("openai")
TOKENIZER = families.qwen()
CHAT = Renderer(protocols.get("chat-tools"), TOKENIZER)
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "city"}}\n</tool_call><|im_end|>'


def playing(
    solve: Any, turns: Sequence[str], n: int = 1, renderer: Renderer = CHAT, books: Books | None = None, **given: Any
) -> list[Episode]:
    """Episodes in which the policy writes `turns`, one after the other, whatever it is asked."""

    def script(history: list[int], seed: int, turn: int) -> list[int]:
        said = sum(turn_ in renderer.decode(history) for turn_ in {t.removesuffix("<|im_end|>") for t in turns})
        return encode(TOKENIZER, turns[min(max(turn, said), len(turns) - 1)])

    engine = engines.acted(EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)), script)
    agent = agents.find("here", lambda place: solve, given.pop("seconds", 20.0))
    settings = Settings(given.pop("limits", LIMITS), 0.0, 3, agent=agent, **given)
    return rollout(engine, renderer, books or Books(), tasks(n), settings)[0]


def test_an_error_of_the_engine_itself_ends_the_run() -> None:
    def broken(history: list[int], seed: int, turn: int) -> list[int]:
        raise InvariantError("no such row")

    engine = engines.acted(EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)), broken)
    settings = Settings(LIMITS, 0.0, 3, agent=agents.find("here", lambda place: looped, 20.0))
    with pytest.raises(InvariantError, match="no such row"):
        rollout(engine, CHAT, Books(), tasks(1), settings)


def test_an_empty_prompt_is_refused_and_ends_no_run() -> None:
    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        from openai import BadRequestError

        with pytest.raises(BadRequestError, match="not empty"):
            await client.completions.create(model=model, prompt="")
        await client.completions.create(model=model, prompt="Q")
        return "x"

    (episode,) = playing(solve, ["a<|im_end|>"])
    assert (episode.final, episode.outcome) == ("x", None)


def test_a_turn_that_the_models_context_has_no_room_for_ends_the_episode() -> None:
    """The engine has not read it, so nothing that would be sampled later belongs to what the log says."""

    def script(history: list[int], seed: int, turn: int) -> list[int]:
        return [] if "long" in CHAT.decode(history) else encode(TOKENIZER, "a<|im_end|>")

    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        await client.completions.create(model=model, prompt="Q")
        await client.completions.create(model=model, prompt="Qa long")
        return "x"

    engine = engines.acted(EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)), script)
    settings = Settings(LIMITS, 0.0, 3, agent=agents.find("here", lambda place: solve, 20.0))
    (episode,) = rollout(engine, CHAT, Books(), tasks(1), settings)[0]
    assert (episode.stopped, episode.final, episode.outcome) == ("tokens", None, None)


async def looped(question: str, client: Any, model: str, tools: Any) -> str:
    """The plain loop of OpenAI's documentation."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(8):
        reply = (
            (await client.chat.completions.create(model=model, messages=messages, tools=tools.schemas))
            .choices[0]
            .message
        )
        messages.append(reply)
        if not reply.tool_calls:
            return str(reply.content)
        for call in reply.tool_calls:
            found = await tools.call(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
    return ""


@pytest.mark.covers("U14")
def test_an_agent_that_appends_has_one_row_as_the_template_shows_it() -> None:
    books = Books()
    for episode in playing(looped, [CALL, "Paris<|im_end|>"], 3, books=books):
        assert (episode.final, episode.stopped, episode.queries, episode.hits) == ("Paris", "final", ["city"], [1])
        assert episode.log.drops == [] and len(episode.log.views()) == 1
        assert [kind for kind, _ in pieces(episode, TOKENIZER)] == ["prompt", "model", "observation", "model"]
        found = CHAT.protocol.bodies(books.documents)
        said = [
            {"role": "user", "content": "Which city is it?"},
            {"role": "assistant", "content": CALL.removesuffix("<|im_end|>")},
        ]
        said += [{"role": "tool", "content": found}, {"role": "assistant", "content": "Paris"}]
        schemas = [protocols.calls.SEARCH.function]
        shown = TOKENIZER.apply_chat_template(said, tools=schemas, tokenize=False, date_string="26 Jul 2024")  # type: ignore[arg-type]
        assert episode.text == str(shown).rstrip("\n")
        assert episode.documents == books.documents and episode.response.startswith("<tool_call>")


@pytest.mark.parametrize("template", [families.AS_SAID, families.QWEN3P5])
def test_a_thought_that_the_prompt_opened_stays_whole_in_one_row(template: str) -> None:
    renderer = Renderer(protocols.get("chat-tools"), families.qwen(template))
    turns = [f"I look.\n</think>\n\n{CALL}", "It is there.\n</think>\n\nParis<|im_end|>"]
    (episode,) = playing(looped, turns, renderer=renderer)
    assert (episode.final, episode.queries, len(episode.log.views())) == ("Paris", ["city"], 1)
    assert "<|im_start|>assistant\n<think>\nI look.\n</think>\n\n<tool_call>" in episode.text
    assert episode.text.count("<think>") == 2


def test_the_agent_of_the_page_plays(tmp_path: Path) -> None:
    page = Path(protocols.__file__).parents[3] / "docs" / "agents.md"
    (tmp_path / "my_agent.py").write_text(page.read_text().partition("```python\n# my_agent.py")[2].partition("```")[0])
    solve = own.find(f"{tmp_path}/my_agent.py:solve", "an agent", "")
    (episode,) = playing(solve, [CALL, "Paris<|im_end|>"])
    assert (episode.final, episode.queries, episode.log.drops) == ("Paris", ["city"], [])


def test_tools_of_the_role_and_models_without_tools_in_their_template() -> None:
    async def uses(question: str, client: Any, model: str, tools: Any) -> str:
        names = [schema["function"]["name"] for schema in tools.schemas]
        first = await tools.call("search", {"query": "q"})
        second = await tools.call("read", {"document": "1"})
        await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "x"}], tools=tools.schemas
        )
        return f"{names} {first == second}"

    tools = Tools(reads=True)
    plain = Renderer(protocols.get("search-r1").offering(tools.offers), families.qwen(families.WITHOUT_TOOLS))
    (episode,) = playing(uses, ["ok<|im_end|>"], renderer=plain, tools=tools)
    assert episode.final == "['search', 'read'] True" and episode.tools == ["search", "read"]
    assert "You may call these functions" in episode.text and '"name": "read"' in episode.text


def test_a_rewritten_history_begins_a_new_row() -> None:
    async def forgets(question: str, client: Any, model: str, tools: Any) -> str:
        for n in range(3):
            reply = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": f"{question} {n}"}]
            )
        return str(reply.choices[0].message.content)

    (episode,) = playing(forgets, ["one<|im_end|>", "two<|im_end|>", "three<|im_end|>"])
    assert episode.final is not None and len(episode.log.views()) == 3
    for positions, trained in episode.log.views():
        text = TOKENIZER.decode([episode.log.ids[at] for at in positions])
        assert text.count("<|im_start|>user") == 1 and trained.sum() > 0


def test_other_tools_begin_a_new_row_and_unknown_ones_are_told() -> None:
    async def changes(question: str, client: Any, model: str, tools: Any) -> str:
        messages: list[Any] = [{"role": "user", "content": question}]
        for offered in (
            tools.schemas,
            tools.schemas,
            [{**tools.schemas[0], "function": {"name": "other", "parameters": {}}}],
        ):
            reply = await client.chat.completions.create(model=model, messages=messages, tools=offered)
            messages += [reply.choices[0].message, {"role": "user", "content": "go on"}]
        return str(await tools.call("wipe", {}))

    (episode,) = playing(changes, ["one<|im_end|>", "two<|im_end|>", "three<|im_end|>"])
    assert len(episode.log.views()) == 2 and episode.final == "there is no tool wipe" and episode.queries == []


def test_a_request_that_nobody_waits_for_changes_nothing() -> None:
    async def leaves(question: str, client: Any, model: str, tools: Any) -> str:
        asked = {"model": model, "messages": [{"role": "user", "content": "x"}]}
        await client.chat.completions.create(**asked)
        tools.left = asyncio.create_task(client.chat.completions.create(**asked))
        await asyncio.sleep(0.05)
        return "early"

    (episode,) = playing(leaves, ["a<|im_end|>"])
    assert (episode.final, episode.stopped, episode.outcome) == ("early", "final", None)


def test_stop_strings_and_completions_go_on() -> None:
    async def tagged(question: str, client: Any, model: str, tools: Any) -> str:
        prompt = f"Question: {question}\n"
        said = await client.completions.create(model=model, prompt=prompt, stop="</search>")
        query = said.choices[0].text
        prompt += f"{query}</search>" + await tools.call("search", {"query": query}) + "\n"
        return str((await client.completions.create(model=model, prompt=prompt)).choices[0].text)

    (episode,) = playing(tagged, ["city</search>", "Paris<|im_end|>"])
    assert (episode.final, episode.queries, episode.log.drops) == ("Paris", ["city"], [])
    assert episode.text.startswith("Question: Which city is it?\ncity</search>Doc 1")


async def raising(question: str, client: Any, model: str, tools: Any) -> str:
    await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
    raise RuntimeError("no")


async def hanging(question: str, client: Any, model: str, tools: Any) -> str:
    await asyncio.sleep(60)
    return ""


async def blocking(question: str, client: Any, model: str, tools: Any) -> str:
    time.sleep(3)
    return ""


async def leaving(question: str, client: Any, model: str, tools: Any) -> str:
    sys.exit(3)


async def silent(question: str, client: Any, model: str, tools: Any) -> str:
    return "I know it"


async def objects(question: str, client: Any, model: str, tools: Any) -> Any:
    await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
    return {"answer": 7}


async def endless(question: str, client: Any, model: str, tools: Any) -> str:
    while True:
        await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("solve", "cause"),
    [
        (raising, "agent_failed"),
        (leaving, "agent_failed"),
        (blocking, "agent_deadline"),
        (hanging, "agent_deadline"),
        (silent, "agent_silent"),
        (objects, "agent_result"),
    ],
)
def test_what_the_code_does_wrong_voids(solve: Any, cause: str) -> None:
    (episode,) = playing(solve, ["a<|im_end|>"], seconds=0.5 if cause == "agent_deadline" else 20.0)
    assert (episode.outcome, episode.cause) == (Outcome.VOID, cause)
    said = {raising: "RuntimeError: no", leaving: "SystemExit: 3", objects: "dict, which is no text"}
    place = rf" \({re.escape(__file__)}, line \d+\)" if cause == "agent_failed" else ""
    assert re.fullmatch(re.escape(said.get(solve, "")) + place, episode.detail)


@pytest.mark.parametrize(
    ("arguments", "final"),
    [
        ('"Paris"', None),
        ('["Paris"]', None),
        ('{"query": "\\ud800"}', None),
        ('{"query": NaN}', None),
        ('{"query": 7}', "Paris"),  # the tool says so, and the policy plays on
        ('"{\\"query\\": \\"city\\"}"', "Paris"),
    ],
)
def test_calls_that_a_policy_writes_wrongly_void_nothing(arguments: str, final: str | None, tmp_path: Path) -> None:
    call = f'<tool_call>\n{{"name": "search", "arguments": {arguments}}}\n</tool_call>'
    (episode,) = playing(looped, [f"{call}<|im_end|>", "Paris<|im_end|>"])
    assert (episode.outcome, episode.detail, episode.final) == (None, "", final or call)
    assert episode.queries == (["city"] if "city" in arguments else [])
    write(tmp_path / "block.parquet", [episode])


def test_half_of_a_surrogate_pair_comes_to_no_record(tmp_path: Path) -> None:
    async def reads(question: str, client: Any, model: str, tools: Any) -> str:
        reply = await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
        said = json.loads(reply.choices[0].message.content)
        assert await tools.call("search", said) == await tools.call("search", "city")  # which is no object either
        asked = json.dumps({"model": model, "messages": [{"role": "user", "content": said["query"]}]})
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {tools.key}"}) as plain:
            assert (await plain.post(f"{tools.url}/chat/completions", content=asked)).status_code == 400
        return str(said["query"])

    (episode,) = playing(reads, ['{"query": "\\ud800"}<|im_end|>'])
    assert (episode.outcome, episode.final, episode.queries) == (None, "?", [])
    write(tmp_path / "block.parquet", [episode])


def test_a_tool_that_fails_after_a_limit_leaves_the_limit() -> None:
    books = Books()

    async def goes_on(question: str, client: Any, model: str, tools: Any) -> str:
        from openai import BadRequestError

        with pytest.raises(BadRequestError):
            await endless(question, client, model, tools)
        books.down = True
        return str(await tools.call("search", {"query": "q"}))

    (episode,) = playing(goes_on, ["a<|im_end|>"], limits=limits(searches=2, retries=0), books=books)
    assert (episode.outcome, episode.stopped, episode.cause) == (None, "turns", "")


def test_limits_are_the_policys() -> None:
    (turns,) = playing(endless, ["a<|im_end|>"], limits=limits(searches=2, retries=0))
    assert (turns.outcome, turns.stopped, turns.final, turns.log.kinds.count(Kind.MODEL)) == (None, "turns", None, 6)
    (tokens,) = playing(endless, ["word " * 30 + "<|im_end|>"], limits=limits(searches=99, total_tokens=450))
    assert (tokens.outcome, tokens.stopped) == (None, "tokens")


def test_what_limits_cut_off_is_counted_as_in_the_loop() -> None:
    """A turn that reached `turn_tokens`, not one that the client itself kept shorter; and an answer shown in part."""

    async def brief(question: str, client: Any, model: str, tools: Any) -> str:
        said = {"role": "user", "content": question}
        await client.chat.completions.create(model=model, messages=[said], max_tokens=2)
        return "x"

    short = limits(turn_tokens=40, observation_tokens=3)
    books = Books()
    (cut,) = playing(looped, [CALL, "word " * 60], limits=short, books=books)
    assert (cut.cut, cut.cuts, cut.stopped) == (True, 1, "final") and cut.documents != books.documents
    (whole,) = playing(looped, [CALL, "Paris<|im_end|>"])
    assert (whole.cut, whole.cuts) == (False, 0)
    (kept,) = playing(brief, ["word " * 60])
    assert kept.cut is False


def test_a_search_that_fails_voids() -> None:
    books = Books()
    books.down = True
    (episode,) = playing(looped, [CALL], books=books)
    assert (episode.outcome, episode.cause) == (Outcome.VOID, "retriever_down")


@pytest.mark.parametrize(
    "asked",
    [{"n": 5}, {"logit_bias": {"1": 2}}, {"model": "gpt-4"}, {"n": True}, {"messages": []}, {"messages": [{"role": "king", "content": "x"}]},
     {"max_tokens": -1}, {"stop": [1]}, {"extra_body": {"tools": 5}},
     {"messages": [{"role": "user", "content": "x"}], "extra_body": {"messages": 5}}],
)  # fmt: skip
def test_a_request_that_cannot_be_done_is_told_so_and_trains_nothing(asked: dict[str, Any]) -> None:
    from openai import BadRequestError

    async def odd(question: str, client: Any, model: str, tools: Any) -> str:
        with pytest.raises(BadRequestError):
            await client.chat.completions.create(
                **{"model": model, "messages": [{"role": "user", "content": "x"}], **asked}
            )
        reply = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "x"}], temperature=0.3
        )
        return str(reply.choices[0].message.content)

    (episode,) = playing(odd, ["a<|im_end|>"])
    assert (episode.final, episode.outcome) == ("a", None) and episode.text.count("<|im_start|>user") == 1


def test_a_key_opens_its_own_episode_alone() -> None:
    urls: list[tuple[str, str]] = []

    async def other(question: str, client: Any, model: str, tools: Any) -> str:
        from openai import AsyncOpenAI, NotFoundError

        urls.append((tools.url, tools.key))
        while len(urls) < 2:
            await asyncio.sleep(0.01)
        (foreign,) = (url for url, key in urls if key != tools.key)
        async with AsyncOpenAI(base_url=foreign, api_key=tools.key, max_retries=0) as thief:
            with pytest.raises(NotFoundError):
                await thief.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
        return str((await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])).id)

    episodes = playing(other, ["a<|im_end|>"], 2)
    assert [e.outcome for e in episodes] == [None, None] and urls[0][0].startswith("http://127.0.0.1:")


PROGRAM = """
import json, os, sys, urllib.request
question = sys.stdin.read()
assert "SSP_JUDGE_KEY" not in os.environ
body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": question}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


LEFT = """
subprocess.Popen([sys.executable, "-c", "for _ in range(20000): print('.' * 50, flush=True)"], start_new_session=True)
"""
"""It leaves a process in a session of its own, which goes on writing into its output."""


def test_a_program_is_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSP_JUDGE_KEY", "secret")
    (tmp_path / "agent.py").write_text(PROGRAM)
    (tmp_path / "long.py").write_text(f"{PROGRAM}print('x' * {agents.MOST}, flush=True)\nimport time; time.sleep(60)")
    left = f"import subprocess, sys\n{PROGRAM}sys.stdout.flush()\n{LEFT}"
    (tmp_path / "left.py").write_text(left)
    found = {
        name: agents.find(f"command:{sys.executable} {tmp_path}/{name}", lambda _: None, 20.0)
        for name in ("agent.py", "gone.py", "long.py", "left.py")
    }
    engine = engines.acted(
        EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)),
        lambda *_: encode(TOKENIZER, "Paris<|im_end|>"),
    )
    for name, agent in found.items():
        (episode,), _ = rollout(engine, CHAT, Books(), tasks(1), Settings(LIMITS, 0.0, 3, agent=agent))
        fails = name in ("gone.py", "long.py")
        assert (episode.final or "")[:5] == ("" if fails else "Paris") and bool(episode.cause) == fails
        assert episode.cause in ("", "agent_failed")  # not late: what writes too much is ended there and then


@pytest.mark.parametrize("last", ["wait", "exit 0"])
def test_a_program_that_is_late_or_has_ended_ends_with_those_that_it_started(tmp_path: Path, last: str) -> None:
    (tmp_path / "run.sh").write_text(f"sleep 60 &\necho $! > {tmp_path}/pid\n{last}\n")
    engine = engines.acted(EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)), lambda *_: [1])
    agent = agents.find(f"command:sh {tmp_path}/run.sh", lambda _: None, 1.0)
    (episode,), _ = rollout(engine, CHAT, Books(), tasks(1), Settings(LIMITS, 0.0, 3, agent=agent))
    assert (episode.cause, episode.stopped) == ("agent_deadline" if last == "wait" else "agent_silent", "fault")
    status = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    until = time.monotonic() + 20
    while gone_in_time := time.monotonic() < until:
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    assert gone_in_time


def wanders(seed: int) -> Callable[..., Any]:
    """An agent that appends, rewrites, branches, retries and asks in parallel, as chance has it."""

    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        rng = random.Random(f"{seed} {tools.episode.id}")
        messages: list[Any] = [{"role": "user", "content": question}]

        async def ask(said: list[Any]) -> Any:
            offered = tools.schemas if rng.random() < 0.5 else []
            reply = await client.chat.completions.create(
                model=model, messages=said, max_tokens=rng.randint(1, 12), **({"tools": offered} if offered else {})
            )
            return reply.choices[0].message

        for _ in range(6):
            move = rng.choice(["append", "rewrite", "branch", "retry", "parallel"])
            if move == "rewrite":
                messages = [{"role": "system", "content": f"summary {rng.random()}"}, *messages[-2:]]
            elif move == "branch":
                messages = messages[: rng.randint(1, len(messages))]
            if move == "parallel":
                await asyncio.gather(*(ask([*messages, {"role": "user", "content": f"p{n}"}]) for n in range(3)))
            elif move == "retry":
                await ask(messages)
            reply = await ask(messages)
            messages += [
                {"role": "assistant", "content": reply.content},
                {"role": "user", "content": f"more {rng.random():.2f}"},
            ]
        return "done"

    return solve


@pytest.mark.covers("U14")
@pytest.mark.parametrize("seed", range(3))
def test_whatever_an_agent_does_each_token_is_trained_where_it_was_sampled(seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    size = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    model = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=len(TOKENIZER), max_position_embeddings=4096, tie_word_embeddings=True, **size)
    ).eval()
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    live = ContinuousEngine(tmp_path)
    agent = agents.find("here", lambda _: wanders(seed), 120.0)
    room = limits(searches=99, turn_tokens=12, total_tokens=1500)
    try:
        episodes, _ = rollout(live, CHAT, Books(), tasks(4), Settings(room, 1.0, 3, agent=agent))
    finally:
        live.stop()
    seen = 0
    for episode in episodes:
        assert (episode.outcome, episode.stopped) == (None, "final") or episode.stopped == "tokens"
        log, trained = episode.log, 0
        for positions, mask in log.views():
            ids = torch.tensor([[log.ids[at] for at in positions]])
            with torch.no_grad():
                logprobs = torch.log_softmax(model(ids).logits[0].float(), -1)
            for place, (at, ours) in enumerate(zip(positions.tolist(), mask.tolist(), strict=True)):
                if ours:
                    trained += 1
                    assert abs(float(logprobs[place - 1, log.ids[at]]) - log.logprobs[at]) < 1e-4
        assert trained == log.kinds.count(int(Kind.MODEL)) > 0
        seen += trained
    assert seen > 50


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["proposer.agent=a.py:solve"], "an agent plays the solver"),
        (["solver.agent=a.py:solve", "solver.engine.kind=scripted"], "solver.agent plays with engine.kind"),
        (["solver.agent=a.py:solve", "solver.algorithm=gae"], "need one advantage an episode"),
    ],
)
def test_settings_that_no_agent_can_play_with_are_refused(settings: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load("quickstart", settings)


def test_code_that_is_no_agent_is_refused() -> None:
    for made in (lambda q: q, 7, len):
        with pytest.raises(InputError, match="an agent is an async function"):
            agents.find("here", lambda _, made=made: made, 1.0)  # type: ignore[misc]
    with pytest.raises(InputError, match="command:PROGRAM"):
        agents.find("command: ", lambda _: None, 1.0)


@pytest.mark.covers("U14")
def test_a_frameworks_agent_plays_as_it_is() -> None:
    """Pydantic AI, with the episode's client and search."""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        agent = pydantic_ai.Agent(
            OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client)), instructions="Search."
        )

        @agent.tool_plain
        async def search(query: str) -> str:
            """Searches the documents."""
            return str(await tools.call("search", {"query": query}))

        return str((await agent.run(question)).output)

    (episode,) = playing(solve, [CALL, "Paris<|im_end|>"])
    assert (episode.final, episode.queries, episode.hits, episode.log.drops) == ("Paris", ["city"], [1], [])
    assert [kind for kind, _ in pieces(episode, TOKENIZER)] == ["prompt", "model", "observation", "model"]
    assert "Searches the documents." in episode.text and "Paris is the capital" in episode.response
