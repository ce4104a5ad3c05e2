"""The token law for agents that nobody here wrote: what is trained is what was sampled, where it was sampled.

    python tests/bench/agent_law.py --episodes 1000

A plain loop over the `openai` SDK, and agents of Pydantic AI, the OpenAI Agents SDK, smolagents and LangChain (those of them that
are installed) play so many episodes each of three turns with a search after each, every second turn streamed, against the
torch engine with a small random Qwen2 (float32, temperature 1). Of every episode each model token's log-prob is computed again
in its own row by transformers; the batch's mask is compared with the log's. Prints a line an agent: episodes, model tokens,
rows, and the largest difference (1e-4 is allowed).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Not this folder: `agents` there is no SDK.
sys.path[:1] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "rollout")]

import families  # noqa: E402
import torch  # noqa: E402
from scripts import Books, limits, tasks  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from ssp.base.episode import Outcome  # noqa: E402
from ssp.base.tokenlog import Kind  # noqa: E402
from ssp.engines.torch_engine import ContinuousEngine  # noqa: E402
from ssp.game import protocols  # noqa: E402
from ssp.game.protocols.renderer import Renderer  # noqa: E402
from ssp.game.rollout import Settings, agents, rollout  # noqa: E402
from ssp.learning.batch import collate  # noqa: E402

TURNS, AT_ONCE, CLOSE = 3, 50, 1e-4


async def openai_loop(question: str, client: Any, model: str, tools: Any) -> str:
    """The SDK's own messages, appended."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(TURNS):
        reply = await client.chat.completions.create(model=model, messages=messages)
        found = await tools.call("search", {"query": "city"})
        messages += [reply.choices[0].message, {"role": "user", "content": found}]
    return str(reply.choices[0].message.content) or "none"


async def pydantic_ai(question: str, client: Any, model: str, tools: Any) -> str:
    """An agent that is run three times over one history."""
    import pydantic_ai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    made = pydantic_ai.Agent(
        OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client)), instructions="Be brief."
    )
    history, asked = [], question
    for turn in range(TURNS):
        if streams(tools, turn):
            async with made.run_stream(asked, message_history=history) as ran:
                output = await ran.get_output()
        else:
            ran = await made.run(asked, message_history=history)
            output = ran.output
        history, asked = ran.all_messages(), await tools.call("search", {"query": "city"})
    return str(output) or "none"


async def openai_agents(question: str, client: Any, model: str, tools: Any) -> str:
    """The Agents SDK, over its own list of inputs."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    spoken = OpenAIChatCompletionsModel(model=model, openai_client=client)
    agent = Agent(name="searcher", instructions="Be brief.", model=spoken)
    inputs: list[Any] = [{"role": "user", "content": question}]
    for turn in range(TURNS):
        if streams(tools, turn):
            ran: Any = Runner.run_streamed(agent, inputs)
            async for _ in ran.stream_events():
                pass
        else:
            ran = await Runner.run(agent, inputs)
        found = await tools.call("search", {"query": "city"})
        inputs = [*ran.to_input_list(), {"role": "user", "content": found}]
    return str(ran.final_output) or "none"


async def smolagents(question: str, client: Any, model: str, tools: Any) -> str:
    """Two steps of an agent that calls tools, and its answer, in its own threads."""
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    @tool
    def search(query: str) -> str:
        """Searches the document collection.

        Args:
            query: what to look for
        """
        return str(asyncio.run(tools.call("search", {"query": query})))

    key = {"api_base": str(client.base_url), "api_key": client.api_key}
    spoken = OpenAIModel(model_id=model, tool_choice="auto", client_kwargs={"max_retries": 0}, **key)
    agent = ToolCallingAgent(
        tools=[search], model=spoken, max_steps=2, verbosity_level=0, stream_outputs=streams(tools, 0)
    )
    return str(await asyncio.to_thread(agent.run, question)) or "none"


async def langgraph(question: str, client: Any, model: str, tools: Any) -> str:
    """LangChain's agent, which is a graph, over the messages of its last state."""
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    key = {"base_url": str(client.base_url), "api_key": client.api_key}
    messages: list[Any] = [{"role": "user", "content": question}]
    for turn in range(TURNS):
        spoken = ChatOpenAI(model=model, max_retries=0, streaming=streams(tools, turn), **key)
        done = await create_agent(spoken, [], system_prompt="Be brief.").ainvoke({"messages": messages})
        found = await tools.call("search", {"query": "city"})
        messages = [*done["messages"], {"role": "user", "content": found}]
    return str(done["messages"][-1].text) or "none"


def streams(tools: Any, turn: int) -> bool:
    """Every second turn is streamed."""
    return bool((tools.episode.seed + turn) % 2)


PACKAGES = {"openai_loop": "openai", "openai_agents": "agents", "langgraph": "langchain_openai"}
AGENTS = (openai_loop, pydantic_ai, openai_agents, smolagents, langgraph)


def check(model: Any, episodes: list[Any]) -> tuple[int, int, float]:
    """Model tokens, rows, and the largest difference of a log-prob. AssertionError where another token would be trained."""
    tokens = rows = 0
    largest = 0.0
    for episode in episodes:
        episode.outcome = Outcome.SCORED
        log, views = episode.log, episode.log.views()
        batch = collate([episode], [1.0], [0])
        assert int(batch.mask.sum()) == log.kinds.count(int(Kind.MODEL)) and len(batch) == len(views)
        for row, (positions, mask) in enumerate(views):
            ids = torch.tensor([[log.ids[at] for at in positions]])
            assert batch.ids[row, : len(positions)].tolist() == ids[0].tolist()
            assert batch.mask[row, : len(positions)].tolist() == mask.tolist()
            with torch.no_grad():
                logprobs = torch.log_softmax(model(ids).logits[0].float(), -1)
            for place in mask.nonzero()[0].tolist():
                at = positions[place]
                largest = max(largest, abs(float(logprobs[place - 1, log.ids[at]]) - log.logprobs[at]))
                tokens += 1
        rows += len(views)
    assert largest < CLOSE, largest
    return tokens, rows, largest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("only", nargs="*", help="names of agents; all by default")
    parser.add_argument("--episodes", type=int, default=1000)
    args = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = families.qwen()
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=4096, **size)
    model = Qwen2ForCausalLM(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        engine = ContinuousEngine(Path(folder))
    renderer = Renderer(protocols.get("chat-tools"), tokenizer)
    for solve in AGENTS:
        if args.only and solve.__name__ not in args.only:
            continue
        name = PACKAGES.get(solve.__name__, solve.__name__)
        if importlib.util.find_spec(name) is None:
            print(f"{solve.__name__}: {name} is not installed")
            continue
        agent = agents.find("bench", lambda _, solve=solve: solve, 300.0)
        settings = Settings(limits(searches=9, turn_tokens=16, total_tokens=3900), 1.0, 3, agent=agent)
        done = tokens = rows = voids = 0
        largest = 0.0
        while done < args.episodes:
            given = tasks(min(AT_ONCE, args.episodes - done))
            given = [replace(task, seed=done + number) for number, task in enumerate(given)]
            episodes, _ = rollout(engine, renderer, Books(), given, settings)
            voids += sum(episode.outcome is Outcome.VOID for episode in episodes)
            found = check(model, [episode for episode in episodes if episode.outcome is not Outcome.VOID])
            done, tokens, rows, largest = (
                done + len(episodes), tokens + found[0], rows + found[1], max(largest, found[2])
            )  # fmt: skip
        print(
            f"{solve.__name__}: {done} episodes, {voids} void, {tokens} model tokens, {rows} rows, {largest:.1e}",
            flush=True,
        )
    engine.stop()


if __name__ == "__main__":
    main()
