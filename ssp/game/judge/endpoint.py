"""An OpenAI-compatible chat endpoint: many prompts at once, each ends as what was read from the reply, or as a Fault.

Owns requests, their bound, deadlines, retries, the circuit breaker and the key. Promises that no request is without a
deadline, that trouble of the service is a Fault and never a reading, and that the key leaves this process in the
Authorization header only: no message, log line or repr holds it. Refuses to know what is asked.

Causes: `judge_down` (no connection, time-out, 5xx, 408, 409, 425, 429 after the last try, or the breaker is open),
`judge_refused` (any other status: a wrong key, model or request; not tried again), `judge_format` (no reading of any
try's reply), `judge_deadline` (not done within the time that the whole batch has).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
import openai

from ssp.base import services
from ssp.base.errors import Fault, InputError
from ssp.base.seeds import derive
from ssp.base.services import is_loopback, key_from
from ssp.config import own
from ssp.config.schema import JudgeConfig

T = TypeVar("T")

DOWN, REFUSED, FORMAT, DEADLINE = "judge_down", "judge_refused", "judge_format", "judge_deadline"
BACKOFF = 0.5
LONGEST_PAUSE = 20.0
LONGEST_REPLY = 8 * 2**20
THINKS = "take an instruction-tuned judge.model, or raise judge.max_tokens when it thinks before it answers"
_log = logging.getLogger(__name__)


class Trouble(Fault):
    """One try's failure: whether another try may help, and the seconds that the server asks to wait before it."""

    def __init__(self, cause: str, detail: str, again: bool, wait: float = 0.0) -> None:
        super().__init__(cause, detail)
        self.again, self.wait = again, wait


class Breaker:
    """Counts failures in a row. At `limit` nothing may go out for `seconds`; then one request tries, and decides.

    `why`: the last failure.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        self._row, self._until = 0, 0.0
        self.why = Trouble(DOWN, "", again=False)

    @property
    def tripped(self) -> bool:
        """True from `limit` failures in a row until a request succeeds."""
        return self._row >= self._limit

    @property
    def open(self) -> bool:
        """True while nothing may go out."""
        return self.tripped and time.monotonic() < self._until

    def succeeded(self) -> None:
        """A reply came."""
        self._row = 0

    def failed(self, why: Trouble) -> None:
        """A request came to nothing."""
        self._row, self.why = self._row + 1, why
        if self.tripped:
            self._until = time.monotonic() + self._seconds


class Endpoint:
    """`judge.url` with `judge.model`. `seconds`: what one call of `ask` may take. One caller at a time.

    InputError when the key that `judge.key_env` names is missing and the endpoint is not on this machine.
    """

    def __init__(
        self,
        cfg: JudgeConfig,
        seconds: float = math.inf,
        seed: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cfg, self._seconds, self._sleep = cfg, seconds, sleep
        self._key = _key(cfg)
        self._breaker = Breaker(cfg.breaker, cfg.breaker_seconds)
        self._rng = random.Random(derive(seed, "judge", "back-off"))
        self._said: set[str] = set()

    def ask(
        self, prompts: Sequence[str], read: Callable[[str], T | None], max_tokens: int | None = None
    ) -> list[T | Fault]:
        """For each prompt what `read` makes of the reply, in order; a reply of which it makes None is asked for again.

        `max_tokens`: of a reply; default `judge.max_tokens`. Greedy.
        """
        if not prompts:
            return []
        found = _run(self._all(prompts, read, max_tokens or self._cfg.max_tokens))
        said = {str(trouble) for trouble in {item.cause: item for item in found if isinstance(item, Fault)}.values()}
        for text in sorted(said - self._said):  # what the last call said already is no news
            _log.warning("%s", text)
        self._said = said
        return found

    def check(self, prompt: str, read: Callable[[str], T | None]) -> None:
        """Ask once, before a run relies on it. InputError when nothing can be read from the reply, with what to change."""
        (found,) = _run(self._all([prompt], read, self._cfg.max_tokens))
        if not isinstance(found, Fault):
            return
        steps = {
            REFUSED: f"correct judge.url, judge.model or the key in {self._cfg.key_env or 'judge.key_env'}",
            FORMAT: f"correct judge.url (with /v1); or {THINKS}",
        }
        raise InputError(
            f"judge.url gives a usable reply, as judge.model={self._cfg.model}, before it is relied on",
            found,
            steps.get(found.cause, "start it (ssp serve --judge MODEL), or correct judge.url"),
        )

    async def _all(self, prompts: Sequence[str], read: Callable[[str], T | None], most: int) -> list[T | Fault]:
        """Connections live as long as this call."""
        turns, trial = asyncio.Semaphore(self._cfg.concurrency), asyncio.Lock()
        async with self._client() as client:

            async def one(prompt: str) -> str:
                async with turns:
                    return await self._guarded(trial, client, prompt, most)

            jobs = [asyncio.create_task(self._tries(one, prompt, read)) for prompt in prompts]
            _, late = await asyncio.wait(jobs, timeout=None if math.isinf(self._seconds) else self._seconds)
            for job in late:
                job.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        over = Fault(DEADLINE, f"no verdict within {self._seconds:g} s")
        return [over if job in late else job.result() for job in jobs]

    async def _tries(
        self, one: Callable[[str], Awaitable[str]], prompt: str, read: Callable[[str], T | None]
    ) -> T | Fault:
        """One prompt to its end: `judge.retries` further tries, after pauses that double."""
        for attempt in range(self._cfg.retries + 1):
            try:
                reply = await one(prompt)
                found = read(reply)
                if found is not None:
                    return found
                trouble = Trouble(FORMAT, f"not in the form that was asked for: {self._clean(reply)!r}", again=True)
            except Trouble as error:
                trouble = error
            if not trouble.again or attempt == self._cfg.retries:
                break
            backoff = BACKOFF * self._rng.uniform(0.5, 1.0)
            await self._sleep(services.pause(attempt, backoff, trouble.wait, LONGEST_PAUSE))
        return trouble

    async def _guarded(self, trial: asyncio.Lock, client: openai.AsyncOpenAI, prompt: str, most: int) -> str:
        """One request, if the breaker lets it. After a pause one goes first, and the others wait for what comes of it."""
        async with trial:
            if self._breaker.open:
                raise Trouble(self._breaker.why.cause, self._breaker.why.detail, again=False)
            if self._breaker.tripped:
                return await self._counted(client, prompt, most)
        return await self._counted(client, prompt, most)

    async def _counted(self, client: openai.AsyncOpenAI, prompt: str, most: int) -> str:
        try:
            reply = await self._request(client, prompt, most)
        except Trouble as trouble:
            self._breaker.failed(trouble)
            raise
        self._breaker.succeeded()
        return reply

    async def _request(self, client: openai.AsyncOpenAI, prompt: str, most: int) -> str:
        """The text of the reply, "" when it has none. Raises Trouble."""
        try:
            # httpx's own time-out is a chunk's, hence a second one here.
            async with (
                asyncio.timeout(self._cfg.timeout),
                client.chat.completions.with_streaming_response.create(
                    model=self._cfg.model,
                    messages=[{"role": "user", "content": prompt}],
                    temperature=0.0,
                    max_tokens=most,
                    extra_headers={} if self._key else {"Authorization": openai.Omit()},
                ) as reply,
            ):
                body = await _read(reply.iter_bytes())
            text = _content(body)
            if text is not None:
                return text
            said = f"no chat completion: {self._clean(body[:200].decode('utf-8', 'replace'))!r}"
            trouble = Trouble(FORMAT, self._where(said), again=True)
        except openai.APIStatusError as error:
            again = services.again(error.status_code)
            wait = services.asked_pause(error.response.headers.get("retry-after", ""))
            trouble = Trouble(DOWN if again else REFUSED, self._where(error.message), again, wait)
        except (openai.APIConnectionError, httpx.HTTPError, TimeoutError) as error:
            said = str(error.__cause__ or error) or f"no answer within {self._cfg.timeout:g} s"
            trouble = Trouble(DOWN, self._where(said), again=True)
        raise trouble  # only here, so that no chain of exceptions leads to what the client quotes

    def _client(self) -> openai.AsyncOpenAI:
        # A proxy of the environment is for the outside.
        transport = httpx.AsyncClient(trust_env=not is_loopback(self._cfg.url), follow_redirects=True)
        return openai.AsyncOpenAI(
            base_url=self._cfg.url,
            api_key=self._key or "none",
            timeout=self._cfg.timeout,
            max_retries=0,
            http_client=transport,
        )

    def _where(self, said: str) -> str:
        return f"{self._cfg.url}: {self._clean(said)}"

    def _clean(self, text: str) -> str:
        return services.clean(text, self._key, 300)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; in a thread of its own when the caller is inside an event loop, which then waits."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()
    return asyncio.run(work)


def _key(cfg: JudgeConfig) -> str:
    if not own.sealed(cfg.key_env) and cfg.key_env and not os.environ.get(cfg.key_env, "").strip():
        if is_loopback(cfg.url):
            return ""
        raise InputError(
            f"judge.key_env names the environment variable that holds the key of {cfg.url}",
            f"{cfg.key_env} is not set",
            f"export {cfg.key_env}=... where the judges run, or set judge.key_env='' if the endpoint takes no key",
        )
    return key_from(cfg.key_env)


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    """The body; its beginning when it is longer than any reply."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > LONGEST_REPLY:
            break
    return bytes(body[:LONGEST_REPLY])


def _content(body: bytes) -> str | None:
    """The text of a chat completion, "" when it has none; None for a body of another kind."""
    try:
        message = json.loads(body)["choices"][0]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    text = message.get("content")
    return text if isinstance(text, str) else ""
