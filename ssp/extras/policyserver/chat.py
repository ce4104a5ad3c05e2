"""OpenAI's API at a policy, under two names of models: one answers a question with its searches, as it
was trained to; `policy` is the policy alone, a turn a request, as an agent's endpoint gives it."""

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import orjson

from ssp.base.episode import Episode
from ssp.base.errors import InputError, SspError, hold, holding
from ssp.base.tokenlog import Kind
from ssp.config.role import COLDEST
from ssp.extras.policyserver.answers import CHAT, Answerer, searches
from ssp.game.rollout import chat

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.requests import Request
    from starlette.responses import Response

MOST = 2**20
"""Bytes of a request, at most."""
BODY_SECONDS = 30.0
"""Seconds that a request may take to arrive."""
NEUTRAL = {"top_p": 1, "repetition_penalty": 1, "top_k": -1}
"""Values that change no sampling; so do 0 and null."""


def routes(server: "MCPServer[Any]", answerer: Answerer, name: str) -> None:
    """Add OpenAI's API to an MCP server; `name`: what the model is called that answers
    questions."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    def refused(status: int, kind: str, said: object) -> "Response":
        return JSONResponse(chat.trouble(kind, said), status)

    async def answered(what: str, request: Request) -> "Response":
        wrong = "invalid_request_error"
        try:
            body = await _body(request)
            reply = await _reply(answerer, name, what, body)
        except TimeoutError:
            rule = f"a request arrives within {BODY_SECONDS:g} s"
            return refused(408, wrong, InputError(rule, "half of one", "send it anew"))
        except (InputError, chat.Refused, ValueError) as error:
            return refused(400, wrong, error)
        except SspError as error:
            return refused(503, "server_error", error)
        if body.get("stream"):
            events = "".join(chat.events(reply, body))
            return Response(events, media_type="text/event-stream")
        return JSONResponse(reply)

    @server.custom_route("/v1/chat/completions", methods=["POST"])
    async def chats(request: Request) -> "Response":
        return await answered(CHAT, request)

    @server.custom_route("/v1/completions", methods=["POST"])
    async def completes(request: Request) -> "Response":
        return await answered("completions", request)

    @server.custom_route("/v1/responses", methods=["POST"])
    async def responds(request: Request) -> "Response":
        return refused(404, "not_found", chat.RESPONSES)

    @server.custom_route("/v1/models", methods=["GET"])
    async def models(request: Request) -> "Response":
        return JSONResponse(chat.models(name, chat.MODEL))


async def _reply(answerer: Answerer, name: str, what: str, body: Any) -> chat.Body:
    """The reply to a request. InputError, Refused and ValueError for what cannot be done."""
    hold(isinstance(body, dict), "a chat request is a JSON object", type(body).__name__, "send one")
    model = body.get("model")
    names, rule = (None, name, chat.MODEL), "model is one of those that GET /v1/models names"
    hold(model in names, rule, model, f"take {name}")
    heat, seed = sampling(body)
    if model == chat.MODEL:
        return await answerer.turn(what, body, heat, seed)
    step = f"ask at /v1/chat/completions, or take the model {chat.MODEL}"
    hold(what == CHAT, f"{name} answers messages", what, step)
    asked = question({**body, "model": name}, name)
    episode = await answerer.ask(asked, heat, seed)
    return completion(answerer, episode, name, body)


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


def sampling(body: chat.Body) -> tuple[float | None, int]:
    """Temperature (None: the server's) and seed of a request. InputError for what is not done."""
    heat, seed = body.get("temperature"), body.get("seed")
    seed = 0 if seed is None else seed
    numeric = type(heat) in (int, float)
    fits = heat is None or (numeric and (heat == 0 or COLDEST <= heat <= 2))
    rule = f"temperature is 0 or from {COLDEST} to 2, and seed whole"
    hold(fits and type(seed) is int, rule, f"{heat}, {seed}", "leave them out")
    odd = []
    for key in chat.OURS - {"temperature", "seed"}:
        if body.get(key) and body[key] != NEUTRAL.get(key):
            odd.append(f"{key}={body[key]}")
    rule = "a policy is sampled by temperature and seed alone"
    hold(not odd, rule, ", ".join(sorted(odd)), "leave it out")
    return None if heat is None else float(heat), seed


def question(body: dict[str, Any], name: str) -> str:
    """The question of a chat request to the model `name`: the user's one message, behind those of
    the system. InputError and Refused for what cannot be done."""
    chat.check(body, name)
    chat.stops_of(body)
    chat.tokens_of(body)
    step = f"ask each question by itself, or take the model {chat.MODEL}"
    rule = f"{name} searches by itself, so a request brings no tools"
    hold(not body.get("tools"), rule, "tools", f"leave them out, or take the model {chat.MODEL}")

    messages = body.get("messages")
    listed = messages if isinstance(messages, list) else []
    rule = (
        "messages is one message of the user with a text, after those of the system, since the"
        " policy was trained on single questions"
    )
    objects = all(isinstance(message, dict) for message in listed)
    hold(listed and objects, rule, str(messages)[:200], step)
    said = [chat.plain(message) for message in listed]
    roles = [message["role"] for message in said]
    single = roles[-1] == "user" and set(roles[:-1]) <= {"system"}
    hold(single, rule, ", ".join(roles), step)
    return "\n\n".join(message["content"] for message in said if message["content"])


def completion(answerer: Answerer, episode: Episode, name: str, body: chat.Body) -> chat.Body:
    """The reply of OpenAI's API, with one field more: `ssp` says why the episode ended, and what was
    searched and read. Stop strings and `max_tokens` cut the answer."""
    total, written = len(episode.log), episode.log.kinds.count(Kind.MODEL)
    answer = chat.until(episode.final or "", chat.stops_of(body))
    shown = answerer.cut(answer, chat.tokens_of(body))
    message = {"role": "assistant", "content": shown}
    thoughts = answerer.thoughts(episode)
    if thoughts:
        message["reasoning_content"] = thoughts
    whole = episode.final is not None and shown == answer
    choice = {"message": message, "finish_reason": "stop" if whole else "length"}
    id = f"chatcmpl-{uuid.uuid4().hex}"
    reply = chat.completion("chat.completion", id, name, choice, (total - written, written))
    return {**reply, "ssp": {"ended": episode.stopped, "searches": searches(episode)}}
