"""Tools of MCP servers (modelcontextprotocol.io): one client a process and server, by the official
package. So all episodes that a process plays speak to one server, and share what it keeps between
calls.

A server is untrusted: its names and schemas are checked once, its descriptions and results cut and
cleaned, it gets none of this process's environment but what a program needs to start (PATH, HOME),
its stderr goes nowhere, and it ends with us."""

import asyncio
import json
import logging
import os
import shlex
from contextlib import AsyncExitStack
from typing import Any

from ssp.base.errors import Fault, InputError, hold
from ssp.config.rules import check_address
from ssp.game.protocols.calls import Offer
from ssp.game.rollout import programs
from ssp.game.rollout.tools import FOREIGN, SECONDS, Told, Tool, offered, wait

DESCRIBED = 1_000
"""Characters of a server's description that a policy hears of."""
LATE = 3
"""After so many deadlines in a row a server is started, or reached, anew."""
_INVALID_PARAMS = -32602
"""JSON-RPC's code for arguments that a server refuses."""


class Server:
    """An MCP server: `stdio:COMMAND` or an address. Reached at the first call, and again after it
    was lost."""

    def __init__(self, spec: str) -> None:
        self._spec, self._late = spec, 0
        self._client: asyncio.Future[Any] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def tools(self) -> list[Tool]:
        """All of its tools. InputError for a name or a schema that is none."""
        reached, found, cursor = self._reached(), list[Tool](), None
        try:
            async with asyncio.timeout(SECONDS):
                client = await asyncio.shield(reached)
                while True:
                    page = await client.list_tools(cursor=cursor)
                    found += [self._tool(tool) for tool in page.tools]
                    cursor = page.next_cursor
                    if not cursor:
                        return found
        except BaseException:
            self._lose(reached)
            raise

    def _tool(self, tool: Any) -> Tool:
        told = Offer(tool.name, (tool.description or "")[:DESCRIBED], tool.input_schema)
        offer = offered(told, f"mcp:{self._spec}", FOREIGN)

        async def call(arguments: dict[str, Any], key: str) -> Any:
            return await self.call(offer.name, arguments, key)

        return Tool(offer, call, 2 * SECONDS, schema=FOREIGN)

    async def call(self, name: str, arguments: dict[str, Any], key: str) -> str:
        """The text of a result. Fault when the server is gone, late or does not keep to the
        protocol."""
        reached = self._reached()
        try:
            async with asyncio.timeout(SECONDS):
                client = await asyncio.shield(reached)
                result = await client.call_tool(name, arguments, meta={"ssp/idempotency-key": key})
            self._late = 0
        except TimeoutError as error:
            self._late += 1
            if self._late >= LATE:
                self._lose(reached)
            raise Fault(
                "tool_deadline", f"{name} of mcp:{self._spec} did not answer in {SECONDS:g} s"
            ) from error
        except Exception as error:  # of the connection, of the protocol, of what the server sends
            if getattr(error, "code", 0) == _INVALID_PARAMS:
                raise Told(f"{name}: {error}") from error
            self._lose(reached)
            raise Fault(
                "tool_down", f"{name} of mcp:{self._spec}: {type(error).__name__}: {error}"
            ) from error
        text = _text(result)
        if result.is_error:
            raise Told(f"{name}: {text}")
        return text

    def _reached(self) -> asyncio.Future[Any]:
        """The client, or who waits for it."""
        if self._client is None:
            self._client, self._late = asyncio.get_running_loop().create_future(), 0
            self._serving = asyncio.create_task(self._serve(self._client))
        return self._client

    async def _serve(self, client: asyncio.Future[Any]) -> None:
        """Hold the connection until it is lost: whoever opens it has to close it."""
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        try:
            async with AsyncExitStack() as stack:
                target: Any = self._spec
                if self._spec.startswith("stdio:"):
                    command, *args = programs.tied(shlex.split(self._spec.removeprefix("stdio:")))
                    unheard = stack.enter_context(open(os.devnull, "w"))
                    target = stdio_client(
                        StdioServerParameters(command=command, args=args), errlog=unheard
                    )
                made: Any = await stack.enter_async_context(Client(target))
                # against a schema of its own: its text alone is shown
                made.session.validate_tool_result = _unchecked
                client.set_result(made)
                await asyncio.Event().wait()
        except BaseException as error:
            if not client.done():
                client.set_exception(
                    error if isinstance(error, Exception) else ConnectionError(str(error))
                )
                client.exception()  # nobody may wait for it any more
            self._lose(client)

    def _lose(self, client: asyncio.Future[Any]) -> None:
        """End this connection, unless it has been followed by another one."""
        if self._client is client and self._serving is not None:
            self._client = None
            self._serving.cancel()


def _text(result: Any) -> str:
    """What a result says: its texts, those of resources in it, and links; of what is neither its
    kind is said. Where there is none of these, its data as JSON."""
    said = list(filter(None, map(_told, result.content)))
    data = result.structured_content
    return "\n".join(said) if said or data is None else json.dumps(data, ensure_ascii=False)


def _told(block: Any) -> str:
    resource = getattr(block, "resource", block)
    if hasattr(resource, "text"):
        return str(resource.text)
    if block.type == "resource_link":
        return " ".join(
            filter(None, (block.title or block.name, str(block.uri), block.description))
        )
    return f"[{getattr(resource, 'mime_type', None) or block.type}: not shown, as it is no text]"


async def _unchecked(name: str, result: object) -> None:
    pass


def connect(spec: str) -> list[Tool]:
    """The tools of the server `spec`. InputError when the package is missing, or nobody answers
    there."""
    rule, step = (
        "tools: [mcp:...] names a server as stdio:COMMAND, or as the http address of one",
        "correct it",
    )
    if spec.startswith("http"):
        check_address("tools: [mcp:URL]", spec, step)  # which faults name
    hold(spec.startswith(("stdio:", "http")), rule, f"mcp:{spec}", step)
    if spec.startswith("stdio:"):
        programs.words(spec.removeprefix("stdio:"), rule)
    try:
        import mcp  # noqa: F401

        for told in ("mcp", "client"):  # what a server sends would stand in what these loggers say
            logging.getLogger(told).setLevel(logging.CRITICAL + 1)
        return list(wait(Server(spec).tools()))
    except ImportError as error:
        raise InputError(
            "tools: [mcp:...] needs the package mcp", "not installed", "pip install -e '.[agents]'"
        ) from error
    except InputError:
        raise
    except Exception as error:
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):  # of the client's tasks
            cause = cause.exceptions[0]
        found = f"mcp:{spec}: {type(cause).__name__}: {cause}"
        step = "start it, or correct the command: typed by itself it says what is wrong"
        raise InputError("an MCP server answers when a run starts", found, step) from error
