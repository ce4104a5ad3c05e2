"""The chat endpoint of OpenAI's API. Refuses what a policy that was trained on single questions cannot
take into account: other messages, tools, n > 1."""

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

MOST = 2**20
"""Bytes of a request, at most."""
BODY_SECONDS = 30.0
"""Seconds that a request may take to arrive."""
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
            model, rule = body.get("model"), "model is what GET /v1/models names"
            hold(model in (None, name), rule, model, f"take {name}")
            episode = await answerer.ask(text, heat, seed)
            return JSONResponse(completion(episode, name))
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
    content = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            content += part
            hold(len(content) <= MOST, rule, "more", "ask a shorter one")
    with holding(ValueError, "a chat request is JSON", str, "send application/json"):
        return orjson.loads(content)


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

    messages = body.get("messages")
    text = None
    if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], dict):
        role, content = messages[0].get("role"), messages[0].get("content")
        text = content if role == "user" else None
    why = "since the policy was trained on single questions"
    rule = f"messages is one message of the user with a text, {why}"
    step = "ask each question by itself"
    hold(isinstance(text, str), rule, str(messages)[:200], step)

    heat, seed = body.get("temperature"), body.get("seed")
    seed = 0 if seed is None else seed
    numeric = type(heat) in (int, float)
    fits = heat is None or (numeric and (heat == 0 or COLDEST <= heat <= 2))
    rule = f"temperature is 0 or from {COLDEST} to 2, and seed whole"
    hold(fits and type(seed) is int, rule, f"{heat}, {seed}", "leave them out")
    return str(text), None if heat is None else float(heat), seed


def completion(episode: Episode, name: str) -> Mapping[str, Any]:
    """The reply of OpenAI's API, with one field more: `ssp` says why the episode ended, and what was
    searched and read."""
    total, written = len(episode.log), episode.log.kinds.count(Kind.MODEL)
    message = {"role": "assistant", "content": episode.final or ""}
    reason = "length" if episode.final is None else "stop"
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": name,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": total - written,
            "completion_tokens": written,
            "total_tokens": total,
        },
        "ssp": {"ended": episode.stopped, "searches": searches(episode)},
    }
