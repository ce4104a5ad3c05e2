"""Agents of frameworks that nobody here wrote, each as its own pages have it: with a search that the policy may call, over three turns
of one history, every second episode streamed.

    ssp train --config simulated --tiny 'solver.agent=tests/rollout/frameworks.py:smolagents'   # more in docs/agents.md
    python tests/bench/agent_law.py smolagents                                                # the token law
"""

from __future__ import annotations

import asyncio
from typing import Any

TURNS = 3
GO_ON = {"query": "city"}


def streams(tools: Any, turn: int = 0) -> bool:
    """Whether this turn is streamed: every second one, where a framework can say so for each."""
    return bool((tools.episode.seed + turn) % 2)


def searching(tools: Any) -> Any:
    """The search, as a function that a framework reads."""

    async def search(query: str) -> str:
        """Searches the document collection."""
        return str(await tools.call("search", {"query": query}))

    return search


async def openai_loop(question: str, client: Any, model: str, tools: Any) -> str:
    """The SDK's own messages, appended."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(TURNS):
        reply = await client.chat.completions.create(model=model, messages=messages)
        shown = await tools.call("search", GO_ON)
        messages += [reply.choices[0].message, {"role": "user", "content": shown}]
    return str(reply.choices[0].message.content)


async def pydantic_ai(question: str, client: Any, model: str, tools: Any) -> str:
    """Pydantic AI."""
    import pydantic_ai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    spoken = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))
    agent = pydantic_ai.Agent(spoken, instructions="Be brief.", tools=[searching(tools)])
    history, asked = [], question
    for turn in range(TURNS):
        if streams(tools, turn):
            async with agent.run_stream(asked, message_history=history) as ran:
                output = await ran.get_output()
        else:
            ran = await agent.run(asked, message_history=history)
            output = ran.output
        history, asked = ran.all_messages(), await tools.call("search", GO_ON)
    return str(output)


async def openai_agents(question: str, client: Any, model: str, tools: Any) -> str:
    """The OpenAI Agents SDK, over its own list of inputs."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)
    spoken = OpenAIChatCompletionsModel(model=model, openai_client=client)
    search = function_tool(searching(tools))
    agent = Agent(name="searcher", instructions="Be brief.", model=spoken, tools=[search])
    inputs: list[Any] = [{"role": "user", "content": question}]
    for turn in range(TURNS):
        if streams(tools, turn):
            ran: Any = Runner.run_streamed(agent, inputs)
            async for _ in ran.stream_events():
                pass
        else:
            ran = await Runner.run(agent, inputs)
        shown = await tools.call("search", GO_ON)
        inputs = [*ran.to_input_list(), {"role": "user", "content": shown}]
    return str(ran.final_output)


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
        tools=[search], model=spoken, max_steps=2, verbosity_level=0, stream_outputs=streams(tools)
    )
    return str(await asyncio.to_thread(agent.run, question))


async def langgraph(question: str, client: Any, model: str, tools: Any) -> str:
    """LangChain's agent, which is a graph, over the messages of its last state."""
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    key = {"base_url": str(client.base_url), "api_key": client.api_key}
    messages: list[Any] = [{"role": "user", "content": question}]
    for turn in range(TURNS):
        spoken = ChatOpenAI(model=model, max_retries=0, streaming=streams(tools, turn), **key)
        agent = create_agent(spoken, [searching(tools)], system_prompt="Be brief.")
        done = await agent.ainvoke({"messages": messages})
        shown = await tools.call("search", GO_ON)
        messages = [*done["messages"], {"role": "user", "content": shown}]
    return str(done["messages"][-1].text)


async def llama_index(question: str, client: Any, model: str, tools: Any) -> str:
    """LlamaIndex, over its own memory."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.llms.openai_like import OpenAILike

    key = {"api_base": str(client.base_url), "api_key": client.api_key}
    spoken = OpenAILike(model=model, is_chat_model=True, is_function_calling_model=True, max_retries=0, **key)
    memory, asked = ChatMemoryBuffer.from_defaults(token_limit=100_000), question
    for turn in range(TURNS):
        agent = FunctionAgent(
            tools=[searching(tools)], llm=spoken, system_prompt="Be brief.", streaming=streams(tools, turn)
        )
        answer = await agent.run(asked, memory=memory)
        asked = await tools.call("search", GO_ON)
    return str(answer)


PACKAGES = {"openai_loop": "openai", "openai_agents": "agents", "langgraph": "langchain_openai"}
"""Packages whose name is not the agent's."""
AGENTS = (openai_loop, pydantic_ai, openai_agents, smolagents, langgraph, llama_index)
