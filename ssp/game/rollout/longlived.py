"""A program that plays many episodes, beside those that play one each (`agents.py`).

It reads a line of JSON for each episode on its standard input: `id`, `question`, the question's
`row`, and the episode's own `base_url`, `api_key`, `model` and `mcp`. It writes a line for each on
its standard output, in any order: `id`, and `answer` with or without `reward`, or `mistake`, or
`error`. Episodes come as they begin, so it may play them side by side or one after another."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ssp.base.errors import Fault
from ssp.game.rollout import programs
from ssp.game.rollout.chat import MODEL
from ssp.game.rollout.player import AgentPlayer

SAID = 400
"""Characters of a program's standard error that a message tells, the last ones."""
KEEPS = 8_000
"""Bytes of what a program said that are kept, the last ones."""
MOST = 2**22
"""The most bytes of a request, and of a program's answer."""
WAITS = 2.0
"""Seconds in which a program that has closed its output ends, and its last lines arrive."""

_DECODER = json.JSONDecoder()


class PolicyMistake(Exception):
    """What the policy wrote, as a program or an environment says, has ended its episode."""


class ProgramEnded(Exception):
    """The program has ended while it played. `fresh`: none of its episodes had been begun."""

    def __init__(self, said: str, fresh: bool) -> None:
        self.fresh = fresh
        super().__init__(said)


class LongLived:
    """The program of one command, which starts at the first episode, and anew after it has ended or
    was late. An episode that it had not begun is given to the next one. All of it happens on the
    loop of tools."""

    def __init__(self, words: Sequence[str], env: dict[str, str]) -> None:
        # An answer that waits in a buffer is never read.
        self._words, self._env = words, env | {"PYTHONUNBUFFERED": "1"}
        self._running: _Running | None = None
        self._starting = asyncio.Lock()

    async def solve(self, player: AgentPlayer) -> Any:
        """The answer to an episode, or answer and reward. PolicyMistake; RuntimeError where the
        program says that it failed, or has ended."""
        while True:
            async with self._starting:
                running = self._running
                if running is None or running.over:
                    running = self._running = await _started(self._words, self._env)
            try:
                return _result(await running.answer(player))
            except ProgramEnded as ended:
                if ended.fresh or _begun(player):
                    raise
            finally:
                player.said += running.heard()


def _begun(player: AgentPlayer) -> bool:
    return len(player.episode.log) > 0 or len(player.episode.queries) > 0


def _result(reply: dict[str, Any]) -> Any:
    if "mistake" in reply:
        raise PolicyMistake(str(reply["mistake"]))
    if "error" in reply:
        raise RuntimeError(str(reply["error"]))
    if "answer" not in reply:
        raise Fault("agent_result", "a line without answer, mistake or error")
    answer = reply["answer"]
    reward = reply.get("reward")
    return answer if reward is None else (answer, reward)


async def _started(words: Sequence[str], env: dict[str, str]) -> "_Running":
    process = await asyncio.create_subprocess_exec(
        *programs.tied(words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        limit=MOST,
        start_new_session=True,
    )
    return _Running(words[0], process)


class _Running:
    """A process. `over`: it is given no further episodes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name, self._process = name, process
        self.over = False
        self._playing: dict[str, tuple[AgentPlayer, asyncio.Future[dict[str, Any]]]] = {}
        self._sent = 0
        self._told = b""
        self._watching = asyncio.create_task(self._watch())

    async def answer(self, player: AgentPlayer) -> dict[str, Any]:
        """Its line for an episode. ProgramEnded."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._sent += 1
        id = str(self._sent)  # which no line of another episode can name
        self._playing[id] = player, future
        asked = {
            "id": id,
            "question": player.question,
            "row": player.row(golds=False),
            "base_url": player.url,
            "api_key": player.key,
            "model": MODEL,
            "mcp": player.mcp,
        }
        try:
            assert self._process.stdin is not None
            with suppress(ConnectionError):  # it has ended, which `_watch` will say
                self._process.stdin.write(json.dumps(asked, default=str).encode() + b"\n")
                await self._process.stdin.drain()
            return await future
        except asyncio.CancelledError:  # late: it may hang
            self.over = True
            raise
        finally:
            del self._playing[id]
            if self.over and not self._playing:
                self._kill()

    def heard(self) -> str:
        """What it has said of its troubles since this was asked last."""
        told, self._told = self._told, b""
        return told.decode(errors="replace").strip()

    async def _watch(self) -> None:
        """Read until it has ended, and tell all whose episodes it played."""
        reading = asyncio.gather(self._lines(), self._troubles())
        code = await self._process.wait()
        self.over = True
        self._kill()  # what it has left behind
        with suppress(TimeoutError):
            await asyncio.wait_for(reading, WAITS)
        said = self._told.decode(errors="replace").strip()[-SAID:]
        said = said or "It said nothing on its standard error"
        fresh = not any(_begun(player) for player, _ in self._playing.values())
        for _, future in self._playing.values():
            if not future.done():
                ended = ProgramEnded(f"{self._name}: ended with code {code}. {said}", fresh)
                future.set_exception(ended)

    async def _lines(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                self._hear(line)
        except ValueError:  # a line that is too long
            self._keep(b"a line of its output is too long\n")
        with suppress(TimeoutError):  # it is about to end
            await asyncio.wait_for(self._process.wait(), WAITS)
        self._kill()  # without an output it answers nothing

    def _hear(self, line: bytes) -> None:
        """Settle the episode whose answer this is; threads that print at once may have put several
        into a line. A line that is of none is kept as what it said: it came late, or a library
        printed it."""
        text = line.decode(errors="replace").strip()
        try:
            while text:
                reply, end = _DECODER.raw_decode(text)
                _, future = self._playing.get(reply["id"], (None, None))
                if future is None:
                    self._keep(f"{text[:end]}\n".encode())
                elif not future.done():
                    future.set_result(reply)
                text = text[end:].lstrip()
        except (ValueError, RecursionError, TypeError, KeyError):
            self._keep(f"{text}\n".encode())

    async def _troubles(self) -> None:
        assert self._process.stderr is not None
        while not self._process.stderr.at_eof():
            self._keep(await self._process.stderr.read(2**16))

    def _keep(self, part: bytes) -> None:
        self._told = (self._told + part)[-KEEPS:]

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
