"""Tools of MCP servers (modelcontextprotocol.io), by the official package. An episode has a
connection of its own to each server that it calls, or a program, which ends with it; where settings
say so, all episodes of a process share one.

A server is untrusted. Its names and schemas are checked once; its descriptions and results are cut
and cleaned. Of this process's environment it gets what a program needs to start (PATH, HOME), and
the keys that settings name, which are blotted out of all that it says. Its standard error goes
nowhere, and it ends with us."""

import asyncio
import hashlib
import json
import logging
import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from ssp.base.errors import Fault, InputError, hold
from ssp.base.places import find
from ssp.base.services import key_from, sealed
from ssp.config.rules import check_address
from ssp.config.toolserver import ToolServerConfig
from ssp.game.protocols.calls import Offer
from ssp.game.rollout import programs
from ssp.game.rollout.tools import FOREIGN, SECONDS, Told, Tool, ToolRequest, offered, wait

DESCRIBED = 1_000
"""Characters of a tool's description that a policy is told."""
LATE = 3
"""Deadlines in a row after which a server is started, or reached, anew."""
STARTS = 4
"""Programs, or connections, of a server that start at once."""
QUEUED = 120.0
"""Seconds that a call waits for these at most."""
SECRET = 8
"""Characters of the shortest value that is taken for a key, and blotted out."""
LONGEST_NAME = 64
"""Characters of a name as policies are told it."""
LINKS = 4
"""Resources behind the links of a result that are read."""
_INVALID_PARAMS = -32602
"""JSON-RPC's code for arguments that a server refuses."""
_NAME = re.compile(r"[\w./-]{1,128}", re.ASCII)
"""Names of tools as the protocol allows them."""


class Server:
    """An MCP server. InputError for a key that the environment has not.

    `stateless`: it takes no session, so that its episodes cannot be told apart."""

    def __init__(self, cfg: ToolServerConfig) -> None:
        self.cfg = cfg
        self.starting = asyncio.Semaphore(STARTS)
        self.stateless = False
        self.env = {name: key_from(name, cfg.mcp, needed=True) for name in cfg.env}
        self.headers: dict[str, str] = {}
        secrets = [*self.env.values()]
        for header, words in cfg.headers.items():
            before, blank, name = words.rpartition(" ")
            secrets.append(key_from(name, cfg.mcp, needed=True))
            self.headers[header] = f"{before}{blank}{secrets[-1]}"
        self._secrets = [secret for secret in secrets if len(secret) >= SECRET]
        self._links: dict[str, Link] = {}

    async def tools(self) -> list[Tool]:
        """Those of its tools that settings take. InputError for a name or a schema that is none,
        and for a tool that it has not."""
        link = Link(self)
        tools = await link.listed()
        if self.cfg.session == "episode":
            link.end()
        else:
            self._links[""] = link
        names = [tool.name for tool in tools]
        wanted = {*self.cfg.only, *self.cfg.rename}
        rule = "an MCP server has the tools that only and rename name"
        absent = ", ".join(sorted(wanted - {*names}))
        step = f"it has {', '.join(map(str, names))[:DESCRIBED] or 'none'}"
        hold(names and not absent, rule, f"{self.cfg}: {absent or 'no tools'}", step)
        if self.cfg.only:
            tools = [tool for tool in tools if tool.name in self.cfg.only]
        told = told_names([tool.name for tool in tools], self.cfg)
        return [self._tool(tool, told[tool.name]) for tool in tools]

    def _tool(self, tool: Any, name: str) -> Tool:
        description = (tool.description or "")[:DESCRIBED]
        if name != tool.name:
            description = f"({tool.name}) {description}".rstrip()
        told = Offer(name, self.blotted(description), tool.input_schema)
        offer = offered(told, f"{self.cfg}", FOREIGN)
        seconds = self.cfg.seconds + QUEUED
        return Tool(offer, partial(self.call, tool.name), seconds, schema=FOREIGN)

    async def call(self, name: str, arguments: dict[str, Any], asked: ToolRequest) -> str:
        """The text of a result. Fault when the server is gone, late or does not keep to the
        protocol."""
        key = asked.episode if self.cfg.session == "episode" else ""
        if key not in self._links:
            self._links[key] = Link(self)
        return await self._links[key].call(name, arguments, asked)

    def done(self, episode: str) -> None:
        """End what the episode had of this server."""
        link = self._links.pop(episode, None)
        if link is not None:
            link.end()

    def blotted(self, text: str) -> str:
        """`text` without the keys that this server was given."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


class Link:
    """A connection to a server, or a program with one. Reached at the first call, and again after
    it was lost."""

    def __init__(self, server: Server) -> None:
        self._server, self._cfg = server, server.cfg
        self._late = 0
        self._client: asyncio.Future[Any] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def listed(self) -> list[Any]:
        """All tools of the server, as it describes them."""
        reached = self._reached()
        tools: list[Any] = []
        cursor = None
        try:
            async with asyncio.timeout(max(SECONDS, self._cfg.seconds)):
                client = await asyncio.shield(reached)
                while True:
                    page = await client.list_tools(cursor=cursor)
                    tools += page.tools
                    cursor = page.next_cursor
                    if not cursor:
                        return tools
        except BaseException:
            self._lose(reached)
            raise

    async def call(self, name: str, arguments: dict[str, Any], asked: ToolRequest) -> str:
        """See `Server.call`."""
        reached = self._reached()
        tool, meta = f"{name} of {self._cfg}", {"ssp/idempotency-key": asked.key}
        try:
            client = await asyncio.shield(reached)
            async with asyncio.timeout(self._cfg.seconds):
                result = await client.call_tool(name, arguments, meta=meta)
                text = self._server.blotted(await _text(client, result))
            self._late = 0
        except TimeoutError as error:
            self._late += 1
            if self._late >= LATE:
                self._lose(reached)
            late = f"{tool} did not answer in {self._cfg.seconds:g} s"
            raise Fault("tool_deadline", late) from error
        except Exception as error:  # of the connection, of the protocol, of what the server sends
            said = self._server.blotted(f"{error}")
            if getattr(error, "code", 0) == _INVALID_PARAMS:
                raise Told(f"{asked.call.tool}: {said}") from None
            self._lose(reached)
            raise Fault("tool_down", f"{tool}: {type(error).__name__}: {said}") from None
        if result.is_error and self._cfg.errors == "fault":
            raise Fault("tool_failed", f"{tool}: {text}")
        if result.is_error:
            raise Told(f"{asked.call.tool}: {text}")
        return text

    def end(self) -> None:
        """Close it."""
        if self._client is not None:
            self._lose(self._client)

    def _reached(self) -> asyncio.Future[Any]:
        """The client, once it is there."""
        if self._client is None:
            self._late = 0
            self._client = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._client))
        return self._client

    async def _serve(self, client: asyncio.Future[Any]) -> None:
        """Hold the connection until it is lost: the task that opens it has to close it."""
        try:
            async with AsyncExitStack() as stack:
                async with self._server.starting:
                    async with asyncio.timeout(max(SECONDS, self._cfg.seconds)):
                        connected = await self._opened(stack)
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

    async def _opened(self, stack: AsyncExitStack) -> Any:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        if self._cfg.is_program:
            command, *args = programs.tied(shlex.split(self._cfg.command))
            parameters = StdioServerParameters(command=command, args=args, env=self._server.env)
            unheard = stack.enter_context(open(os.devnull, "w"))
            return await stack.enter_async_context(Client(stdio_client(parameters, unheard)))

        sessions = []

        async def hear(response: Any) -> None:
            sessions.append(response.headers.get("mcp-session-id"))

        http = create_mcp_http_client(headers=self._server.headers)
        http.event_hooks = {"response": [hear]}
        await stack.enter_async_context(http)
        target = streamable_http_client(self._cfg.mcp, http_client=http)
        # A session is what the handshake opens; newer versions of the protocol know none.
        mode = "legacy" if self._cfg.session == "episode" else "auto"
        client = await stack.enter_async_context(Client(target, mode=mode))
        self._server.stateless = not any(sessions)
        return client

    def _lose(self, client: asyncio.Future[Any]) -> None:
        """End this connection, unless another one has followed it."""
        if self._client is client and self._serving is not None:
            self._client = None
            self._serving.cancel()


def told_names(names: Sequence[str], cfg: ToolServerConfig) -> dict[str, str]:
    """A server's name of a tool → its name for the policy: a letter, then letters, digits, _ and
    -. Names that become one, or are too long, end in digits of their own."""
    told = {}
    for name in names:
        rule = "an MCP tool's name has 1 to 128 letters, digits, _, -, . and /"
        named = name in cfg.rename or _NAME.fullmatch(name)
        hold(named, rule, f"{cfg}: {name[:128]!r}", "take others by only, or rename it")
        plain = re.sub("[^A-Za-z0-9_-]", "_", f"{cfg.prefix}{name}")
        told[name] = cfg.rename.get(name, re.sub("^[^A-Za-z]+", "", plain) or "tool")
    counts = Counter(told.values())
    for name, short in told.items():
        doubled = counts[short] > 1 and not short.endswith(name)
        if name not in cfg.rename and (doubled or len(short) > LONGEST_NAME):
            mark = hashlib.sha256(name.encode()).hexdigest()[:8]
            told[name] = f"{short[: LONGEST_NAME - 9]}_{mark}"
    return told


async def _text(client: Any, result: Any) -> str:
    """The text of a result: its texts, those of resources in it, its links with the texts behind
    them, and the kinds of its other parts. Where it has none of these, its data as JSON."""
    parts = []
    for block in result.content:
        parts.append(_told(block))
        if block.type == "resource_link" and len(parts) <= LINKS:
            parts += await _behind(client, str(block.uri))
    parts = list(filter(None, parts))
    data = result.structured_content
    return "\n".join(parts) if parts or data is None else json.dumps(data, ensure_ascii=False)


async def _behind(client: Any, uri: str) -> list[str]:
    """The texts of a resource; none where the server does not give it."""
    try:
        read = await client.read_resource(uri)
    except Exception:  # many links lead to what the server only names
        return []
    return [part.text for part in read.contents if hasattr(part, "text")]


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


def connect(cfg: ToolServerConfig) -> tuple[list[Tool], Server]:
    """The tools of a server, and the server. InputError when the package is missing, nobody answers
    there, or a run's own config.yaml names it and is not trusted."""
    rule = "tools: [mcp:...] names a server as stdio:COMMAND, or as the http address of one"
    if sealed(f"{cfg}"):
        find(f"{cfg}", "a tool", "")
    elif cfg.mcp.startswith("http"):
        check_address("tools: [mcp:URL]", cfg.mcp, "correct it")  # faults name it
    elif cfg.is_program:
        programs.words(cfg.command, rule)
    else:
        raise InputError(rule, f"{cfg}", "correct it")
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        rule, step = "tools: [mcp:...] needs the package mcp", "pip install -e '.[agents]'"
        raise InputError(rule, "not installed", step) from error
    for name in ("mcp", "client", "httpx2"):  # these loggers tell what a server sends
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    server = Server(cfg)
    try:
        return list(wait(server.tools())), server
    except InputError:
        raise
    except Exception as error:
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):  # of the client's tasks
            cause = cause.exceptions[0]
        raised = server.blotted(f"{cfg}: {type(cause).__name__}: {cause}")
        step = "start it, or correct the command: typed by itself it says what is wrong"
        raise InputError("an MCP server answers when a run starts", raised, step) from None
