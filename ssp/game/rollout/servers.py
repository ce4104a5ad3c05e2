"""Tools of MCP servers (modelcontextprotocol.io): one client a process and server, by the official package.

A server is untrusted: its names and schemas are checked once, its descriptions and results are cut and cleaned, it gets none
of this process's environment but what a program needs to start (PATH, HOME), and its error output is thrown away.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from ssp.base.errors import Fault, InputError
from ssp.game.protocols.calls import Offer
from ssp.game.rollout.tools import SECONDS, Tool, offered, wait

DESCRIBED = 1_000
"""Characters of a server's description that a policy hears of."""
LATE = 3
"""After so many deadlines in a row a server is started, or reached, anew."""


class _Mistake(Exception):
    """A tool says itself that it could not do what it was asked."""


class Server:
    """An MCP server: `stdio:COMMAND` or an address. Reached at the first call, and again after it was lost."""

    def __init__(self, spec: str) -> None:
        self._spec, self._late = spec, 0
        self._client: asyncio.Future[Any] | None = None
        self._end: Callable[[], object] = lambda: None

    async def tools(self) -> list[Tool]:
        """All of its tools. InputError for a name or a schema that is none."""
        client, found, cursor = await self._reached(), [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += [self._tool(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                return found

    def _tool(self, tool: Any) -> Tool:
        offer = offered(Offer(tool.name, (tool.description or "")[:DESCRIBED], tool.input_schema), f"mcp:{self._spec}")

        async def call(arguments: dict[str, Any], key: str) -> Any:
            return await self.call(offer.name, arguments, key)

        return Tool(offer, call, 2 * SECONDS, (_Mistake,))

    async def call(self, name: str, arguments: dict[str, Any], key: str) -> str:
        """The text of a result. Fault when the server is gone, late or does not keep to the protocol."""
        try:
            async with asyncio.timeout(SECONDS):
                client = await self._reached()
                result = await client.call_tool(name, arguments, meta={"ssp/idempotency-key": key})
            self._late = 0
        except TimeoutError as error:
            self._late += 1
            if self._late >= LATE:
                self._lose()
            raise Fault("tool_deadline", f"{name} of mcp:{self._spec} did not answer in {SECONDS:g} s") from error
        except Exception as error:  # of the connection, of the protocol, of what the server sends
            self._lose()
            raise Fault("tool_down", f"{name} of mcp:{self._spec}: {type(error).__name__}: {error}") from error
        text = "\n".join(block.text for block in result.content if block.type == "text")
        if result.is_error:
            raise _Mistake(f"{name}: {text}")
        return text

    async def _reached(self) -> Any:
        if self._client is None:
            self._client, over = asyncio.get_running_loop().create_future(), asyncio.Event()
            self._late, self._end = 0, over.set
            serving = asyncio.create_task(self._serve(self._client, over))
            serving.add_done_callback(lambda _: None)  # a reference, as long as it runs
        return await asyncio.shield(self._client)

    async def _serve(self, client: asyncio.Future[Any], over: asyncio.Event) -> None:
        """Hold the connection until it is lost: whoever opens it has to close it."""
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        try:
            async with AsyncExitStack() as stack:
                target: Any = self._spec
                if self._spec.startswith("stdio:"):
                    command, *args = shlex.split(self._spec.removeprefix("stdio:"))
                    unheard = stack.enter_context(open(os.devnull, "w"))
                    target = stdio_client(StdioServerParameters(command=command, args=args), errlog=unheard)
                client.set_result(await stack.enter_async_context(Client(target)))
                await over.wait()
        except BaseException as error:
            if not client.done():
                client.set_exception(error if isinstance(error, Exception) else ConnectionError(str(error)))
            self._lose()

    def _lose(self) -> None:
        self._client = None
        self._end()


def connect(spec: str) -> list[Tool]:
    """The tools of the server `spec`. InputError when the package is missing, or nobody answers there."""
    rule, step = "tools: [mcp:...] names a server as stdio:COMMAND, or as the http address of one", "correct it"
    if not spec.startswith(("stdio:", "http://", "https://")) or not spec.removeprefix("stdio:").strip():
        raise InputError(rule, f"mcp:{spec}", step)
    try:
        import mcp  # noqa: F401

        return list(wait(asyncio.wait_for(Server(spec).tools(), SECONDS)))
    except ImportError as error:
        raise InputError(
            "tools: [mcp:...] needs the package mcp", "not installed", "pip install 'ssp[agents]'"
        ) from error
    except InputError:
        raise
    except Exception as error:
        found = f"mcp:{spec}: {type(error).__name__}: {error}"
        raise InputError(
            "an MCP server answers when a run starts", found, "start it, or correct the command"
        ) from error
