"""The role's tools over MCP, at the endpoint of each episode. The official package speaks the protocol;
each request stands by itself, without a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ssp.base.errors import Fault
from ssp.game.rollout.player import AgentPlayer

if TYPE_CHECKING:
    from aiohttp import web

PLAYER = "ssp.player"
"""Where a request carries its episode."""
_OPENED: list[asyncio.Future[Any]] = []
"""What answers in this process, once there is one."""
_HELD: list[asyncio.Task[None]] = []
"""The task that holds it open."""


async def answer(player: AgentPlayer, request: web.Request) -> web.Response:
    """The reply to a request of an MCP client in the episode of `player`."""
    from aiohttp import web

    if request.method != "POST":  # a stream of events, or the end of a session: there is neither
        return web.Response(status=405, headers={"Allow": "POST"})
    body = await request.read()
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        manager = await _manager()
    except ImportError:
        return web.Response(status=404, text="needs the package mcp: pip install -e '.[agents]'")
    headers = [(name.lower(), value) for name, value in request.raw_headers]
    scope = {"type": "http", "method": "POST", "path": request.path, "headers": headers}
    await manager.handle_request({**scope, "query_string": b"", PLAYER: player}, receive, send)
    start, *parts = sent
    told = [(name.decode(), value.decode()) for name, value in start["headers"]]
    text = b"".join(part.get("body", b"") for part in parts)
    return web.Response(status=start["status"], headers=told, body=text)


async def _manager() -> Any:
    """What answers, which is opened at the first call."""
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    async def hold(opened: asyncio.Future[Any]) -> None:
        try:
            server = Server("ssp", on_list_tools=_listed, on_call_tool=_called)
            manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
            async with manager.run():
                opened.set_result(manager)
                await asyncio.Event().wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)  # else whoever calls would wait for good

    if not _OPENED:
        _OPENED.append(asyncio.get_running_loop().create_future())
        _HELD.append(asyncio.create_task(hold(_OPENED[0])))
    return await asyncio.shield(_OPENED[0])


async def _listed(context: Any, asked: Any) -> Any:
    from mcp_types import ListToolsResult, Tool

    tools = []
    for schema in context.request.scope[PLAYER].schemas:
        told = schema["function"]
        tool = Tool(
            name=told["name"],
            description=told["description"],
            input_schema=told["parameters"],
        )
        tools.append(tool)
    return ListToolsResult(tools=tools)


async def _called(context: Any, asked: Any) -> Any:
    from mcp_types import CallToolResult, TextContent

    player: AgentPlayer = context.request.scope[PLAYER]
    failed = False
    try:
        text = await player.call(asked.name, asked.arguments or {})
    except Fault as fault:  # which has voided the episode
        text, failed = fault.cause, True
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)
