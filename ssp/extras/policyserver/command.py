"""`ssp serve --policy RUN`: an OpenAI-compatible endpoint and an MCP server, which answer with a
policy."""

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from launch import policy
from launch.cli import Parser, address, bind, end_politely, parse, temperature, whole
from ssp.base.errors import SspError, hold
from ssp.base.printable import say
from ssp.extras.policyserver.answers import Answerer, searches
from ssp.extras.policyserver.chat import routes
from ssp.game.rollout.chat import MODEL

if TYPE_CHECKING:
    from mcp.server import MCPServer

ABOUT = "Serve a policy with its search: POST /v1/chat/completions, and MCP at /mcp."


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. InputError for bad arguments, a policy that is none, a taken port,
    and without the package mcp."""
    parsed = parse(argv, "serve", ABOUT, _flags)
    args = parsed.flags
    rule = "ssp serve --policy needs the package mcp"
    installed = importlib.util.find_spec("mcp")
    hold(installed, rule, "not installed", "pip install 'ssp[agents]'")
    end_politely()
    with redirect_stdout(sys.stderr):  # on stdio nothing but the protocol is written
        named = policy.parse(args)
        cfg = named.config(args.config, parsed.overrides)
        answerer = Answerer(cfg, named, args.corpus, args.temperature)
        server = _tool(answerer)
    if args.stdio:
        server.run("stdio")
        return 0
    import uvicorn

    shown = named.shown(named.folder(cfg))
    rule = f"{MODEL} is the name of the policy without its search"
    hold(args.name != MODEL, rule, f"--name {MODEL}", "take another name")
    routes(server, answerer, args.name or shown)
    with bind(args.host, args.port) as listener:
        host, port = listener.getsockname()[:2]
        say(f"answering with {shown} on {address(host, port)}/v1, and /mcp")
        app = server.streamable_http_app(stateless_http=True, json_response=True, host=args.host)
        settings = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(settings).run(sockets=[listener])
    answerer.close()
    return 0


def _tool(answerer: Answerer) -> "MCPServer[Any]":
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server: MCPServer[Any] = MCPServer("ssp", log_level="WARNING")

    @server.tool()
    async def answer(question: str) -> dict[str, Any]:
        """Answer a question that takes searches, with the documents that were read."""
        try:
            episode = await answerer.ask(question)
        except SspError as error:
            raise ToolError(str(error)) from error
        given, ended = episode.final or "", episode.stopped
        return {"answer": given, "ended": ended, "searches": searches(episode)}

    return server


def _flags(parser: Parser) -> None:
    policy.add_flags(parser)
    add = parser.add_argument
    corpus = "to search in; default: that of the first evaluation set, else data.corpus"
    add("--corpus", help=corpus)
    add("--temperature", type=temperature, default=0.0, help="0 is greedy (default)")
    add("--name", default="", help="the model's name for clients (default: the policy's)")
    stdio = "be an MCP server on stdin and stdout, without a port"
    add("--stdio", action="store_true", help=stdio)
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    port = "0 takes a free port (default 8001)"
    add("--port", type=whole(0, 65535), default=8001, help=port)
