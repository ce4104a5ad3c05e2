"""An OpenAI-compatible chat endpoint: many prompts at once, each ends as what was read from the
reply, or as a Fault. Causes: `judge_down` (no connection, time-out, 5xx, 408, 409, 425, 429 after
the last try), `judge_refused` (any other status: a wrong key, model or request), `judge_format` (no
reading of any try's reply), `judge_deadline` (not done within the time that the whole batch has).
After `IN_A_ROW` failures the rest of a batch fails at once. No message holds the key."""

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

import httpx

from ssp.base.errors import Fault, InputError
from ssp.base.services import JUDGE_KEY, SEALED, Service, clean, is_loopback, key_from
from ssp.config.schema import JudgeConfig

T = TypeVar("T")

DOWN, REFUSED, FORMAT, DEADLINE = "judge_down", "judge_refused", "judge_format", "judge_deadline"
BACKOFF = 0.5
IN_A_ROW = 8
"""Prompts of a batch that nobody answered, one after the other, after which no other one is
sent."""
_log = logging.getLogger(__name__)


class Endpoint:
    """`judge.url` with `judge.model`. `seconds`: what one call of `ask` may take. One caller at a
    time. InputError for a key that is none, or would go to a sealed address."""

    def __init__(self, cfg: JudgeConfig, seconds: float = math.inf) -> None:
        self._cfg, self._seconds = cfg, seconds
        self._key, self._url = key_from(JUDGE_KEY, cfg.url), cfg.url.removeprefix(SEALED)
        self._until, self._failures, self._why = math.inf, 0, Fault(DOWN)

    def ask(
        self,
        prompts: Sequence[str],
        read: Callable[[str], T | None],
        max_tokens: int | None = None,
        temperature: float = 0.0,
    ) -> list[T | Fault]:
        """For each prompt what `read` makes of the reply, in order; a reply of which it makes None
        is asked for again. `max_tokens`: of a reply; default `JudgeConfig.longest`."""
        self._until, self._failures = time.monotonic() + self._seconds, 0
        service = Service(
            (DOWN, FORMAT),
            self._cfg.timeout,
            self._cfg.retries + 1,
            BACKOFF,
            allow=self._allow,
            secret=self._key,
            trust_env=not is_loopback(self._url),  # a proxy of the environment is for the outside
            follow_redirects=True,
            limits=httpx.Limits(max_connections=self._cfg.concurrency),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
        )
        pool = ThreadPoolExecutor(self._cfg.concurrency)
        asked = {"temperature": temperature, "max_tokens": max_tokens or self._cfg.longest}
        one = partial(self._one, service, read, asked)
        jobs: list[Future[T | Fault]] = [pool.submit(one, prompt) for prompt in prompts]
        over = Fault(DEADLINE, f"no verdict within {self._seconds:g} s")
        try:
            done, _ = wait(jobs, timeout=None if math.isinf(self._seconds) else self._seconds)
            found = [job.result() if job in done else over for job in jobs]
        finally:
            self._until = time.monotonic()  # what is under way is not tried again
            pool.shutdown(wait=False, cancel_futures=True)
            service.close()
        for fault in {item.cause: item for item in found if isinstance(item, Fault)}.values():
            _log.warning("%s", fault)
        return found

    def check(self, prompt: str, read: Callable[[str], T | None]) -> None:
        """Ask once, before a run relies on it. InputError when nothing can be read from the reply,
        with what to change."""
        (found,) = self.ask([prompt], read)
        if isinstance(found, Fault):
            steps = {
                REFUSED: f"correct judge.url, judge.model or the key in {JUDGE_KEY}",
                FORMAT: (
                    "correct judge.url (with /v1); or take an instruction-tuned judge.model, or set"
                    " judge.format=thought when it thinks before it answers"
                ),
            }
            rule = (
                f"judge.url gives a usable reply, as judge.model={self._cfg.model}, before it is"
                " relied on"
            )
            step = "start it (ssp serve --judge MODEL), or correct judge.url"
            raise InputError(rule, found, steps.get(found.cause, step))

    def _one(
        self,
        service: Service,
        read: Callable[[str], T | None],
        options: dict[str, float],
        prompt: str,
    ) -> T | Fault:
        """One prompt to its end."""
        said = ""
        try:
            for _ in range(self._cfg.retries + 1):
                content = self._reply(service, prompt, options)
                text = _text(content)
                found = None if text is None else read(text)
                if found is not None:
                    return found
                said = content.decode("utf-8", "replace") if text is None else text
        except Fault as fault:
            self._failures, self._why = self._failures + 1, fault
            return fault
        what = "no chat completion" if text is None else "not in the form that was asked for"
        return Fault(FORMAT, f"{self._url}: {what}: {clean(said, self._key, 300)!r}")

    def _reply(self, service: Service, prompt: str, options: dict[str, float]) -> bytes:
        """The body of the reply. Raises Fault."""
        asked = [{"role": "user", "content": prompt}]
        body = {"model": self._cfg.model, "messages": asked, **options}
        status, content = service.ask(
            "POST", f"{self._url.rstrip('/')}/chat/completions", json=body
        )
        if status >= 300:
            raise Fault(REFUSED, f"{self._url}: status {status} {service.said(content)}")
        self._failures = 0
        return content

    def _allow(self) -> None:
        """Asked before every try."""
        if time.monotonic() > self._until:
            raise Fault(DEADLINE, f"no verdict within {self._seconds:g} s")
        if self._failures >= IN_A_ROW:
            raise self._why


def _text(content: bytes) -> str | None:
    """The text of a chat completion, "" when it has none; None for a body of another kind."""
    try:
        text = json.loads(content)["choices"][0]["message"].get("content")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return text if isinstance(text, str) else ""
