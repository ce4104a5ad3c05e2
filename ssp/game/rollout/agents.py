"""Plays episodes by a user's own agent instead of the loop: a function, or a program, that talks to
an OpenAI-compatible endpoint (`player.py`). This process serves the endpoint on loopback, with a
path and a key for each episode.

A failure of the agent's code is a fault of ours, which voids its episode (law 2); limits are the
policy's."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import math
import numbers
import os
import re
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from ssp.base.episode import Episode, Task
from ssp.base.errors import Fault, hold, holding
from ssp.base.printable import masked, say
from ssp.base.values import Seconds
from ssp.engines.base import FreeEngine
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import programs, toolpoint
from ssp.game.rollout.chat import MODEL, RESPONSES, Refused, events, models, trouble
from ssp.game.rollout.longlived import KEEPS, MOST, SAID, LongLived, PolicyMistake
from ssp.game.rollout.player import AgentPlayer
from ssp.game.rollout.settings import Agent, Settings
from ssp.game.rollout.toolloop import on_loop, wait
from ssp.game.rollout.tools import exceptions
from ssp.search.hits import Search

if TYPE_CHECKING:
    from aiohttp import web

COMMAND, SERVE = "command:", "serve:"
KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables of the environment that a program gets: no keys."""
OTHERS = ("site-packages", sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]))
"""Places of code that is not the user's own."""
MISTAKES = {
    "agents.exceptions.MaxTurnsExceeded",
    "agents.exceptions.ModelBehaviorError",
    "langchain.agents.structured_output.StructuredOutputError",
    "langchain_core.exceptions.OutputParserException",
    "langgraph.errors.GraphRecursionError",
    "pydantic_ai.exceptions.UnexpectedModelBehavior",
    "pydantic_ai.exceptions.UsageLimitExceeded",
    "smolagents.utils.AgentMaxStepsError",
    "smolagents.utils.AgentParsingError",
    "smolagents.utils.AgentToolCallError",
}
"""Exceptions of frameworks for what the model did wrong: it called what is not there, or came to no
end."""
NO_END = re.compile(r"WorkflowRuntimeError: (Error in step '\w+': )?Max iterations of \d+ reached")
"""What LlamaIndex says of a model that came to no end, in the exception that it raises for failures
of the code too."""


def find(named: str, place: Callable[[str], Any], seconds: float) -> Agent:
    """The agent that `solver.agent` names: a program for each episode, one for many, or a function
    that `place` finds. This may have `mistakes` and `golds`, and take the question's `row`.
    InputError for anything else."""
    rule = "an agent is command:PROGRAM ARGUMENTS, serve:PROGRAM ARGUMENTS, or FILE.py:NAME"
    if named.startswith(COMMAND):
        words = programs.words(named.removeprefix(COMMAND), rule)
        return Agent(partial(_run, words), seconds)
    if named.startswith(SERVE):
        words = programs.words(named.removeprefix(SERVE), rule)
        return Agent(LongLived(words, _kept()).solve, seconds, (PolicyMistake,))
    function = place(named)
    rule = "an agent is an async function of (question, client, model, tools), and row if it likes"
    step = "write `async def solve(question, client, model, tools):`"
    hold(inspect.iscoroutinefunction(function), rule, named, step)
    takes_row = "row" in inspect.signature(function).parameters
    beside: dict[str, object] = {"row": {}} if takes_row else {}
    with holding(TypeError, rule, lambda _: named, step):
        inspect.signature(function).bind("question", "client", "model", "tools", **beside)
    mistakes = exceptions(getattr(function, "mistakes", ()), "an agent", named)
    golds = getattr(function, "golds", False)
    rule = "golds of an agent says whether it may see the right answers"
    hold(type(golds) is bool, rule, f"{named}: {golds!r}", "write True, or leave it out")
    rule, step = "an agent needs the package openai", "pip install 'ssp[agents]'"
    with holding(ImportError, rule, lambda _: "not installed", step):
        from openai import AsyncOpenAI

    async def asked(player: AgentPlayer) -> Any:
        beside = {"row": player.row(golds)} if takes_row else {}
        async with AsyncOpenAI(
            base_url=player.url, api_key=player.key, max_retries=0, timeout=seconds
        ) as client:
            return await function(player.question, client, MODEL, player, **beside)

    async def solve(player: AgentPlayer) -> Any:  # on a loop of its own, which it may block
        answer, raised = await on_loop(asked(player), named)
        if raised is not None:  # sys.exit too
            if not player.episode.stopped:  # by a limit, which a client may raise for
                player.said = "".join(traceback.format_exception(raised))
            raise RuntimeError(named) from raised
        return answer

    return Agent(solve, seconds, mistakes)


async def _run(words: Sequence[str], player: AgentPlayer) -> str:
    """The program's answer, on its standard output, to the question on its standard input. Both are
    files, since a process that it leaves behind may keep a pipe open. All of its session ends with
    it. RuntimeError, with the end of its standard error, when it fails."""
    env = _kept() | {"OPENAI_BASE_URL": player.url, "OPENAI_API_KEY": player.key}
    env |= {"OPENAI_MODEL": MODEL, "MCP_URL": f"{player.url}/mcp"}
    with TemporaryFile() as asked, TemporaryFile() as answers, TemporaryFile() as troubles:
        asked.write(player.question.encode())
        asked.seek(0)
        # Appended to, it can be emptied while the program writes.
        fcntl.fcntl(troubles, fcntl.F_SETFL, os.O_APPEND)
        process = await asyncio.create_subprocess_exec(
            *programs.tied(words),
            stdin=asked,
            stdout=answers,
            stderr=troubles,
            env=env,
            start_new_session=True,
        )
        try:
            while process.returncode is None and _length(answers) <= MOST:
                await asyncio.sleep(0.05)
                if _length(troubles) > MOST:
                    os.ftruncate(troubles.fileno(), 0)
            code = process.returncode
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            last = os.pread(troubles.fileno(), KEEPS, max(0, _length(troubles) - KEEPS))
            player.said = last.decode(errors="replace").strip()
        answer = os.pread(answers.fileno(), MOST + 1, 0)  # at no offset that others move
    if code or len(answer) > MOST:
        written = f"{len(answer)} bytes written, of {MOST} at most"
        said = player.said[-SAID:] or "It said nothing on its standard error"
        raise RuntimeError(f"{words[0]}: exit code {code}, {written}. {said}")
    return answer.decode()


def _kept() -> dict[str, str]:
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def _length(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def play(
    engine: FreeEngine,
    renderer: Renderer,
    search: Search,
    tasks: Sequence[Task],
    settings: Settings,
    agent: Agent,
) -> tuple[list[Episode], Seconds]:
    """As `rollout`. All tasks are played at once."""
    players = [AgentPlayer(engine, renderer, search, task, settings) for task in tasks]

    async def together() -> None:
        port = await _serve()
        await asyncio.gather(*(_play(player, agent, port) for player in players))

    wait(together())
    _keep(players, settings.said)
    episodes = [player.episode for player in players]
    texts = renderer.decode_all([episode.log.ids for episode in episodes])
    for episode, text in zip(episodes, texts, strict=True):
        episode.text = text
    seconds = {}
    for part in players[0].seconds:
        seconds[part] = sum(player.seconds[part] for player in players) / len(players)
    return episodes, seconds


def _keep(players: Sequence[AgentPlayer], file: Path | None) -> None:
    """Write what agents said on their standard error, and tracebacks, into `file`; without one onto
    ours."""
    told = [f"{one.episode.id}:\n{one.said[-KEEPS:]}\n" for one in players if one.said]
    if not told:
        return
    if file is None:
        say(masked("".join(told)), file=sys.stderr)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8", errors="replace") as log:
        log.write(masked("".join(told)))


async def _play(player: AgentPlayer, agent: Agent, port: int) -> None:
    """Play a whole episode."""
    episode = player.episode
    fault: Fault | None = None
    mistake = ""
    player.url = f"http://127.0.0.1:{port}/{player.key}/v1"
    _PLAYERS[player.key] = player
    try:
        async with asyncio.timeout(agent.seconds):
            returned = await agent.solve(player)
        if not len(episode.log):
            fault = Fault("agent_silent")
        else:
            episode.final, episode.earned = _results(returned, episode)
    except TimeoutError:
        fault = Fault("agent_deadline")
    except Fault as result:
        fault = result
    except Exception as error:  # whatever a user's agent raises
        cause = error.__cause__ or error
        raised = f"{cause.__class__.__name__}: {cause}{_place(cause)}"
        if len(episode.log) and _mistaken(cause, agent.mistakes):
            mistake = raised
        else:
            fault = Fault("agent_failed", raised)
    finally:
        del _PLAYERS[player.key]
        player.end()
    if player.broken is not None:
        raise player.broken
    if episode.stopped:  # by a limit, or a fault
        episode.final, episode.earned = None, []
    elif fault is not None:
        episode.void(fault)
    elif mistake:
        episode.stopped = "mistake"
        episode.tell(mistake)
    else:
        episode.stopped = "malformed" if episode.final is None else "final"


def _place(error: BaseException) -> str:
    """File and line of the user's own code that led to the error, "" for none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not any(others in frame.filename for others in OTHERS):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


def _results(returned: object, episode: Episode) -> tuple[str | None, list[float]]:
    """The answer that an agent returned, and the reward that came with it: one number, or one a
    turn, or none. The answer is None for an empty one without a reward; with one it is paid. Fault
    `agent_result` for anything else."""
    answer, rewards = returned, list[Any]()
    if isinstance(returned, tuple) and len(returned) == 2:
        answer, reward = returned
        rewards = list(reward) if isinstance(reward, list | tuple) else [reward]
        turns = int(episode.log.turns().max(initial=-1)) + 1
        if not all(map(_is_number, rewards)) or len(rewards) not in (1, turns):
            told = f"a reward of {reward!r}, which is no number, and none for each of {turns} turns"
            raise Fault("agent_result", told)
    if not (answer is None or isinstance(answer, str) or _is_number(answer)):
        raise Fault("agent_result", f"{type(answer).__name__}, which is no text")
    text = "" if answer is None else str(answer)
    # It may hold half of a surrogate pair.
    final = text.encode("utf-8", "replace").decode().strip()
    handed_in = final or rewards
    return final if handed_in else None, [float(one) for one in rewards]


def _is_number(value: object) -> bool:
    """Whether a framework that was asked for a number may have made this."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)


def _mistaken(error: BaseException, mistakes: tuple[type[Exception], ...]) -> bool:
    """Whether the agent, or a framework that is known, says by `error` that the policy did
    wrong."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    known = not names.isdisjoint(MISTAKES) or NO_END.match(f"{type(error).__name__}: {error}")
    return isinstance(error, mistakes) or bool(known)


_PLAYERS: dict[str, AgentPlayer] = {}
"""Key → the episode that is played behind it."""
_SERVING: list[int] = []
"""The port of this process's endpoint, once there is one."""


async def _serve() -> int:
    """The port of the endpoint, which is started at the first call."""
    if not _SERVING:
        from aiohttp import web

        app = web.Application(client_max_size=MOST)
        app.router.add_route("*", "/{key}/v1/{what:.*}", _answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        _SERVING.append(runner.addresses[0][1])
    return _SERVING[0]


async def _answer(request: web.Request) -> web.Response:
    from aiohttp import web

    def refused(status: int, kind: str, said: object) -> web.Response:
        return web.json_response(trouble(kind, said), status=status)

    what = request.match_info["what"].strip("/")
    player = _PLAYERS.get(request.match_info["key"])
    if player is not None and what == "mcp":  # whose clients send no key: the address has it
        return await toolpoint.answer(player, request)
    if player is None or request.headers.get("Authorization") != f"Bearer {player.key}":
        return refused(404, "not_found", "this episode is over, or the key is not its own")
    if request.method == "GET" and what.partition("/")[0] == "models":
        listed = models(MODEL)
        return web.json_response(listed if what == "models" else listed["data"][0])
    asked = {"chat/completions": player.chat, "completions": player.complete}.get(what)
    if asked is None or request.method != "POST":
        said = RESPONSES if what == "responses" else f"/v1/{what} is not spoken here"
        return refused(404, "not_found", said)
    try:
        body = await request.json()
        reply = await asked(body)
    except (ValueError, Refused) as error:
        return refused(400, "invalid_request_error", error)
    except Fault as fault:
        return refused(503, "server_error", fault.cause)
    if not body.get("stream"):
        return web.json_response(reply)
    return web.Response(text="".join(events(reply, body)), content_type="text/event-stream")
