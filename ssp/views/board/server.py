"""The board over HTTP. The page asks nobody but this server, which answers only who names it by an
address of this machine."""

import re
import time
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ssp.base.errors import InputError
from ssp.views.board.data import Board
from ssp.views.board.saved import NOTHING, PAGE, plain
from ssp.views.board.transcripts import details

HEADERS = {
    "content-security-policy": (
        f"{NOTHING}; script-src 'self'; style-src 'self'; connect-src 'self'"
    ),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
SPARE = 10
"""Times as long as the last look took passes before the next one."""


def application(board: Board) -> Starlette:
    """One board as an ASGI app; requests are answered one after the other."""
    next_look = 0.0

    async def data(request: Request) -> Response:
        nonlocal next_look
        since = request.query_params.get("since", "0")
        if not since.isdecimal() or len(since) > 18:
            rule = "since is the number of an earlier answer"
            raise InputError(rule, since, "leave it out for all")
        began = time.monotonic()
        if began >= next_look:  # what plays there needs the machine
            board.look()
            ended = time.monotonic()
            next_look = ended + SPARE * (ended - began)
        return _json(board.since(int(since)))

    async def question(request: Request) -> Response:
        questions = details(board, request.query_params.getlist("id"))
        return _json(questions, 200 if questions else 404)

    async def missing(request: Request, error: Exception) -> Response:
        return PlainTextResponse("not found", 404)

    async def refused(request: Request, error: Exception) -> Response:
        return _json({"error": str(error)}, 400)

    return Starlette(
        routes=[
            Route("/data.json", data),
            Route("/question.json", question),
            Mount("/", StaticFiles(directory=PAGE, html=True)),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)],
        exception_handlers={404: missing, InputError: refused},
    )


async def guarded(request: Request, answer: RequestResponseEndpoint) -> Response:
    """The answer, where somebody on this machine asks for something."""
    host = request.headers.get("host", "")
    response: Response
    if not re.fullmatch(r"(?i)(localhost|127\.0\.0\.1)(:\d*)?", host):
        response = PlainTextResponse("ask for localhost or 127.0.0.1", 403)
    elif request.method != "GET":
        response = PlainTextResponse("GET only", 405)
    else:
        response = await answer(request)
    response.headers.update(HEADERS)
    return response


def _json(data: Any, status: int = 200) -> Response:
    return Response(plain(data), status, media_type="application/json; charset=utf-8")


def server(board: Board) -> uvicorn.Server:
    """The board's server: `run(sockets=[...])` until a signal, or until `should_exit`."""
    app = application(board)
    return uvicorn.Server(
        uvicorn.Config(app, log_level="warning", ws="none", lifespan="off", access_log=False)
    )
