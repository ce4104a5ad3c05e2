"""`ssp serve --policy RUN`: what was trained, for use. The solver with its search answers questions
at an OpenAI-compatible endpoint and as the tool `answer` of an MCP server (Model Context Protocol),
each with the documents that it read.

Promises that a question is played as an evaluation plays it, and that questions which come together
are played together. Refuses what a policy that was trained on single questions would have to leave
out of account: other messages, tools, n > 1."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import time
import uuid
from collections.abc import Hashable, Mapping, Sequence
from contextlib import redirect_stdout
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from launch import policy
from launch.cli import Parser, address, bind, end_politely, parse, temperature, whole
from ssp.base.episode import SOLVER, Episode, Outcome, Task, called
from ssp.base.errors import InputError, SspError, hold, holding
from ssp.base.printable import say
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.config.role import COLDEST
from ssp.config.schema import Config

if TYPE_CHECKING:
    from mcp.server import MCPServer

TOGETHER = 32
"""Questions that are played in one batch at most."""
WAITING = 1024
"""Questions that wait at most; more are refused."""
LONGEST = 65_536
"""Characters of a question, at most."""
MOST, BODY_SECONDS = 2**20, 30.0
"""Bytes of a request, at most, and seconds that it may take to arrive."""
TAKEN = ("model", "messages", "temperature", "seed", "n", "stream", "user")
"""What the body of a chat request may have."""


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. InputError for bad arguments, a policy that is none, a taken port,
    or without mcp."""
    parsed = parse(
        argv,
        "serve",
        "Serve a policy with its search: POST /v1/chat/completions, and MCP at /mcp.",
        _flags,
    )
    args = parsed.flags
    if importlib.util.find_spec("mcp") is None:
        raise InputError(
            "ssp serve --policy needs the package mcp", "not installed", "pip install 'ssp[agents]'"
        )
    end_politely()
    with redirect_stdout(sys.stderr):  # on stdio nothing but the protocol is written
        named = policy.parse(args)
        cfg = named.config(args.config, parsed.overrides)
        solver = Solver(cfg, named, args.corpus, args.temperature)
        server = _tool(solver)
    if args.stdio:
        server.run("stdio")
        return 0
    import uvicorn

    _routes(server, solver, args.name or named.shown(named.folder(cfg)))
    with bind(args.host, args.port) as listener:
        host, port = listener.getsockname()[:2]
        say(
            f"answering with {named.shown(named.folder(cfg))} on {address(host, port)}/v1, and /mcp"
        )
        app = server.streamable_http_app(stateless_http=True, json_response=True, host=args.host)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(
            sockets=[listener]
        )
    solver.close()
    return 0


class Solver:
    """The policy that `named` names, and its search in `corpus` (None: as `ssp ask` takes it).
    `heat`: the temperature of a question that names none."""

    def __init__(self, cfg: Config, named: policy.Policy, corpus: str | None, heat: float) -> None:
        from ssp.capacity.memory import threads
        from ssp.game import corpora
        from ssp.search.batcher import Batcher
        from ssp.selfplay.workers import build

        threads.use(threads.alone(cfg))
        folder = named.folder(cfg)
        build.settings(cfg, SOLVER, heat)  # its tools and its agent are there
        self._cfg, self.heat = cfg, heat
        self._corpus = corpus or (cfg.data.eval[0].corpus if cfg.data.eval else cfg.data.corpus)
        search = corpora.search(cfg, [self._corpus])
        build.check_model(cfg, SOLVER, folder)
        self._parts = build.engine(cfg.solver, folder), build.renderer(cfg, SOLVER, folder), search
        self._tokenizer, self._check = build.tokenizer(folder), build.check_words
        self._settings = lambda heat: build.settings(cfg, SOLVER, heat)
        self._batch: Batcher[tuple[str, int], Episode, None] = Batcher(
            self._play, TOGETHER, waiting=WAITING
        )

    def close(self) -> None:
        """End its thread; who waits gets an error."""
        self._batch.close()

    async def ask(self, question: str, heat: float | None = None, seed: int = 0) -> Episode:
        """The episode of a question: the same for the same question, temperature and seed, where
        the engine repeats itself. InputError for a question that cannot be asked; SspError for one
        that could not be played."""
        rule, fits = (
            f"a question has a word, and at most {LONGEST} characters",
            len(question) <= LONGEST,
        )
        hold(question.split() and fits, rule, len(question), "ask another one")
        self._check(self._tokenizer, [question])
        asked = self._batch.submit(self.heat if heat is None else heat, [(question, seed)])
        try:
            async with asyncio.timeout(self._cfg.placement.call_timeout):
                (episode,), _ = await asyncio.wrap_future(asked)
        except TimeoutError:
            raise SspError(f"no answer within {self._cfg.placement.call_timeout:g} s") from None
        if episode.outcome is Outcome.VOID:
            said = ": ".join(filter(None, (episode.cause, episode.detail)))
            raise SspError(f"the question could not be played: {said}")
        return episode

    def _play(self, heat: Hashable, asked: list[tuple[str, int]]) -> tuple[list[Episode], None]:
        from ssp.game.rollout import rollout

        tasks = []
        for i, (text, seed) in enumerate(asked):
            drawn = derive(self._cfg.seed, "ask", text, seed)
            tasks.append(
                Task(f"ask-{i}", "ask", SOLVER, i, drawn, {"question": text}, self._corpus)
            )
        return rollout(*self._parts, tasks, self._settings(heat))[0], None


def searches(episode: Episode) -> list[dict[str, Any]]:
    """Each search that was carried out, with what it showed."""
    shown, out = iter(episode.documents), []
    for query, hits in zip(called(episode.queries, episode.tools), episode.hits, strict=True):
        rows = [{"id": one.id, "title": one.title, "text": one.text} for one in islice(shown, hits)]
        out.append({"query": query, "documents": rows})
    return out


def question(body: Any) -> tuple[str, float | None, int]:
    """Question, temperature (None: the server's) and seed of a chat request. InputError for what
    cannot be done."""
    hold(
        isinstance(body, dict),
        "a chat request is a JSON object",
        type(body).__name__,
        "send one with messages",
    )
    odd = sorted(name for name in body if name not in TAKEN)
    if (
        odd
        or (body.get("n") is not None and not (type(body["n"]) is int and body["n"] == 1))
        or body.get("stream")
    ):
        found = ", ".join(odd) or f"n={body.get('n')}, stream={body.get('stream')}"
        raise InputError(
            f"a chat request has {', '.join(TAKEN)}; n is 1 and stream is false",
            found,
            "leave it out",
        )
    messages = body.get("messages")
    one = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
    if (
        not isinstance(one, dict)
        or one.get("role") != "user"
        or not isinstance(one.get("content"), str)
    ):
        rule = (
            "messages is one message of the user with a text, since the policy was trained on"
            " single questions"
        )
        raise InputError(rule, str(messages)[:200], "ask each question by itself")
    heat, seed = body.get("temperature"), body.get("seed")
    seed = 0 if seed is None else seed
    fits = heat is None or type(heat) in (int, float) and (heat == 0 or COLDEST <= heat <= 2)
    rule = f"temperature is 0 or from {COLDEST} to 2, and seed whole"
    hold(fits and type(seed) is int, rule, f"{heat}, {seed}", "leave them out")
    return one["content"], None if heat is None else float(heat), seed


def _tool(solver: Solver) -> MCPServer[Any]:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server: MCPServer[Any] = MCPServer("ssp", log_level="WARNING")

    @server.tool()
    async def answer(question: str) -> dict[str, Any]:
        """Answer a question that takes searches, with the documents that were read."""
        try:
            episode = await solver.ask(question)
        except SspError as error:
            raise ToolError(str(error)) from error
        return {
            "answer": episode.final or "",
            "ended": episode.stopped,
            "searches": searches(episode),
        }

    return server


def _routes(server: MCPServer[Any], solver: Solver, name: str) -> None:
    """The chat endpoint, beside the MCP server's own."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    def refused(status: int, kind: str, error: BaseException) -> JSONResponse:
        return JSONResponse(
            {"error": {"message": str(error), "type": kind, "param": None, "code": None}}, status
        )

    @server.custom_route("/v1/chat/completions", methods=["POST"])
    async def chat(request: Request) -> JSONResponse:
        try:
            read = bytearray()
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    read += part
                    hold(
                        len(read) <= MOST,
                        f"a chat request has at most {MOST} bytes",
                        "more",
                        "ask a shorter one",
                    )
            with holding(ValueError, "a chat request is JSON", str, "send application/json"):
                body = orjson.loads(read)
            text, heat, seed = question(body)
            if body.get("model") not in (None, name):
                raise InputError(
                    "model is what GET /v1/models names", body["model"], f"take {name}"
                )
            return JSONResponse(completion(await solver.ask(text, heat, seed), name))
        except TimeoutError:
            late = InputError(
                f"a request arrives within {BODY_SECONDS:g} s", "half of one", "send it anew"
            )
            return refused(408, "invalid_request_error", late)
        except InputError as error:
            return refused(400, "invalid_request_error", error)
        except SspError as error:
            return refused(503, "server_error", error)

    @server.custom_route("/v1/models", methods=["GET"])
    async def models(request: Request) -> JSONResponse:
        return JSONResponse(
            {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "ssp"}]}
        )


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


def _flags(parser: Parser) -> None:
    policy.add_flags(parser)
    parser.add_argument(
        "--corpus", help="to search in; default: that of the first evaluation set, else data.corpus"
    )
    parser.add_argument(
        "--temperature", type=temperature, default=0.0, help="0 is greedy (default)"
    )
    parser.add_argument(
        "--name", default="", help="the model's name for clients (default: the policy's)"
    )
    parser.add_argument(
        "--stdio", action="store_true", help="be an MCP server on stdin and stdout, without a port"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=whole(0, 65535), default=8001, help="0 takes a free port (default 8001)"
    )
