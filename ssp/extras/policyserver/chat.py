"""The chat endpoint of OpenAI's API. Refuses what a policy that was trained on single questions would
have to leave out of account: other messages, tools, n > 1."""

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from ssp.base.episode import Episode
from ssp.base.errors import InputError, SspError, hold, holding
from ssp.base.tokenlog import Kind
from ssp.config.role import COLDEST
from ssp.extras.policyserver.answers import Answerer, searches

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.requests import Request

MOST, BODY_SECONDS = 2**20, 30.0
"""Bytes of a request, at most, and seconds that it may take to arrive."""
TAKEN = ("model", "messages", "temperature", "seed", "n", "stream", "user")
"""What the body of a chat request may have."""


def routes(server: "MCPServer[Any]", answerer: Answerer, name: str) -> None:
    """Add the chat endpoint to an MCP server; `name`: what the model is called."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    def refused(status: int, kind: str, error: BaseException) -> JSONResponse:
        told = {"message": str(error), "type": kind, "param": None, "code": None}
        return JSONResponse({"error": told}, status)

    @server.custom_route("/v1/chat/completions", methods=["POST"])
    async def chat(request: Request) -> JSONResponse:
        wrong = "invalid_request_error"
        try:
            body = await _body(request)
            text, heat, seed = question(body)
            rule, ours = "model is what GET /v1/models names", body.get("model") in (None, name)
            hold(ours, rule, body.get("model"), f"take {name}")
            return JSONResponse(completion(await answerer.ask(text, heat, seed), name))
        except TimeoutError:
            rule = f"a request arrives within {BODY_SECONDS:g} s"
            return refused(408, wrong, InputError(rule, "half of one", "send it anew"))
        except InputError as error:
            return refused(400, wrong, error)
        except SspError as error:
            return refused(503, "server_error", error)

    @server.custom_route("/v1/models", methods=["GET"])
    async def models(request: Request) -> JSONResponse:
        one = {"id": name, "object": "model", "owned_by": "ssp"}
        return JSONResponse({"object": "list", "data": [one]})


async def _body(request: "Request") -> Any:
    """The JSON of a request. TimeoutError for one that comes too slowly, InputError for a long one
    and for what is no JSON."""
    rule = f"a chat request has at most {MOST} bytes"
    read = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            read += part
            hold(len(read) <= MOST, rule, "more", "ask a shorter one")
    with holding(ValueError, "a chat request is JSON", str, "send application/json"):
        return orjson.loads(read)


def question(body: Any) -> tuple[str, float | None, int]:
    """Question, temperature (None: the server's) and seed of a chat request. InputError for what
    cannot be done."""
    rule = "a chat request is a JSON object"
    hold(isinstance(body, dict), rule, type(body).__name__, "send one with messages")
    odd = sorted(name for name in body if name not in TAKEN)
    number, stream = body.get("n"), body.get("stream")
    single = number is None or (type(number) is int and number == 1)
    rule = f"a chat request has {', '.join(TAKEN)}; n is 1 and stream is false"
    told = ", ".join(odd) or f"n={number}, stream={stream}"
    hold(not odd and single and not stream, rule, told, "leave it out")

    heat, seed = body.get("temperature"), body.get("seed")
    seed = 0 if seed is None else seed
    text = _asked(body.get("messages"))
    fits = heat is None or (type(heat) in (int, float) and (heat == 0 or COLDEST <= heat <= 2))
    rule = f"temperature is 0 or from {COLDEST} to 2, and seed whole"
    hold(fits and type(seed) is int, rule, f"{heat}, {seed}", "leave them out")
    return text, None if heat is None else float(heat), seed


def _asked(messages: Any) -> str:
    """The text of the one message."""
    one = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
    if isinstance(one, dict) and one.get("role") == "user" and isinstance(one.get("content"), str):
        return str(one["content"])
    why = "since the policy was trained on single questions"
    rule = f"messages is one message of the user with a text, {why}"
    raise InputError(rule, str(messages)[:200], "ask each question by itself")


def completion(episode: Episode, name: str) -> Mapping[str, Any]:
    """The reply of OpenAI's API, with one field more: `ssp`, why the episode ended and what was
    searched and read."""
    whole, written = len(episode.log), episode.log.kinds.count(Kind.MODEL)
    usage = {"prompt_tokens": whole - written, "completion_tokens": written, "total_tokens": whole}
    message = {"role": "assistant", "content": episode.final or ""}
    reason = "stop" if episode.final is not None else "length"
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": name,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage,
        "ssp": {"ended": episode.stopped, "searches": searches(episode)},
    }
