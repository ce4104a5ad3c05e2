"""Tools of MCP servers (modelcontextprotocol.io), by the official package. A process has one client
for each server; all its episodes share what the server keeps between calls.

A server is untrusted. Its names and schemas are checked once; its descriptions and results are cut
and cleaned. Of this process's environment it gets what a program needs to start (PATH, HOME). Its
standard error goes nowhere, and it ends with us."""

import asyncio
import json
import logging
import os
import shlex
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from ssp.base.errors import Fault, InputError
from ssp.config.rules import check_address
from ssp.game.protocols.calls import Offer
from ssp.game.rollout import programs
from ssp.game.rollout.tools import FOREIGN, SECONDS, Told, Tool, offered, wait

DESCRIBED = 1_000
"""Characters of a tool's description that a policy is told."""
LATE = 3
"""Deadlines in a row after which a server is started, or reached, anew."""
_INVALID_PARAMS = -32602
"""JSON-RPC's code for arguments that a server refuses."""


class Server:
    """An MCP server: `stdio:COMMAND` or an address. Reached at the first call, and again after it
    was lost."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._late = 0
        self._client: asyncio.Future[Any] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def tools(self) -> list[Tool]:
        """All of its tools. InputError for a name or a schema that is none."""
        reached = self._reached()
        tools: list[Tool] = []
        cursor = None
        try:
            async with asyncio.timeout(SECONDS):
                client = await asyncio.shield(reached)
                while True:
                    page = await client.list_tools(cursor=cursor)
                    tools += map(self._tool, page.tools)
                    cursor = page.next_cursor
                    if not cursor:
                        return tools
        except BaseException:
            self._lose(reached)
            raise

    def _tool(self, tool: Any) -> Tool:
        description = (tool.description or "")[:DESCRIBED]
        told = Offer(tool.name, description, tool.input_schema)
        offer = offered(told, f"mcp:{self._spec}", FOREIGN)
        return Tool(offer, partial(self.call, offer.name), 2 * SECONDS, schema=FOREIGN)

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
            late = f"{name} of mcp:{self._spec} did not answer in {SECONDS:g} s"
            raise Fault("tool_deadline", late) from error
        except Exception as error:  # of the connection, of the protocol, of what the server sends
            if getattr(error, "code", 0) == _INVALID_PARAMS:
                raise Told(f"{name}: {error}") from error
            self._lose(reached)
            down = f"{name} of mcp:{self._spec}: {type(error).__name__}: {error}"
            raise Fault("tool_down", down) from error
        text = _text(result)
        if result.is_error:
            raise Told(f"{name}: {text}")
        return text

    def _reached(self) -> asyncio.Future[Any]:
        """The client, once it is there."""
        if self._client is None:
            self._late = 0
            self._client = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._client))
        return self._client

    async def _serve(self, client: asyncio.Future[Any]) -> None:
        """Hold the connection until it is lost: the task that opens it has to close it."""
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        try:
            async with AsyncExitStack() as stack:
                target: Any = self._spec
                if self._spec.startswith("stdio:"):
                    command, *args = programs.tied(shlex.split(self._spec.removeprefix("stdio:")))
                    parameters = StdioServerParameters(command=command, args=args)
                    unheard = stack.enter_context(open(os.devnull, "w"))
                    target = stdio_client(parameters, errlog=unheard)
                connected: Any = await stack.enter_async_context(Client(target))
                # Only the text of a result is shown, so it need not fit the server's own schema.
                connected.session.validate_tool_result = _unchecked
                client.set_result(connected)
                await asyncio.Event().wait()
        except BaseException as error:
            if not client.done():
                lost = error if isinstance(error, Exception) else ConnectionError(str(error))
                client.set_exception(lost)
                client.exception()  # nobody may wait for it any more
            self._lose(client)

    def _lose(self, client: asyncio.Future[Any]) -> None:
        """End this connection, unless another one has followed it."""
        if self._client is client and self._serving is not None:
            self._client = None
            self._serving.cancel()


def _text(result: Any) -> str:
    """The text of a result: its texts, those of resources in it, its links, and the kinds of its
    other parts. Where it has none of these, its data as JSON."""
    parts = list(filter(None, map(_told, result.content)))
    data = result.structured_content
    return "\n".join(parts) if parts or data is None else json.dumps(data, ensure_ascii=False)


def _told(block: Any) -> str:
    resource = getattr(block, "resource", block)
    if hasattr(resource, "text"):
        return str(resource.text)
    if block.type == "resource_link":
        parts = block.title or block.name, str(block.uri), block.description
        return " ".join(filter(None, parts))
    kind = getattr(resource, "mime_type", None) or block.type
    return f"[{kind}: not shown, as it is no text]"


async def _unchecked(name: str, result: object) -> None:
    pass


def connect(spec: str) -> list[Tool]:
    """The tools of the server `spec`. InputError when the package is missing, or nobody answers
    there."""
    rule = "tools: [mcp:...] names a server as stdio:COMMAND, or as the http address of one"
    if spec.startswith("http"):
        check_address("tools: [mcp:URL]", spec, "correct it")  # faults name it
    elif spec.startswith("stdio:"):
        programs.words(spec.removeprefix("stdio:"), rule)
    else:
        raise InputError(rule, f"mcp:{spec}", "correct it")
    try:
        import mcp  # noqa: F401

        for name in ("mcp", "client"):  # these loggers tell what a server sends
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        return list(wait(Server(spec).tools()))
    except ImportError as error:
        rule, step = "tools: [mcp:...] needs the package mcp", "pip install -e '.[agents]'"
        raise InputError(rule, "not installed", step) from error
    except InputError:
        raise
    except Exception as error:
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):  # of the client's tasks
            cause = cause.exceptions[0]
        raised = f"mcp:{spec}: {type(cause).__name__}: {cause}"
        step = "start it, or correct the command: typed by itself it says what is wrong"
        raise InputError("an MCP server answers when a run starts", raised, step) from error
