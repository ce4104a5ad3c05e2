"""An OpenAI-compatible chat endpoint that is asked many prompts at once. Each prompt ends as what
was read from the reply, or as a Fault of one of these causes:

`judge_down`: no connection, time-out, 5xx, 408, 409, 425 or 429 after the last try.
`judge_refused`: another status, as for a wrong key, model or request.
`judge_format`: no try's reply could be read.
`judge_deadline`: it was not done within the time that the whole batch has.

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
"""Prompts of a batch without an answer, one after the other, after which no other is sent."""
_log = logging.getLogger(__name__)


class Endpoint:
    """`judge.url` with `judge.model`. `seconds`: the most that one call of `ask` may take. One
    caller at a time. InputError for a key that is none, or would go to a sealed address."""

    def __init__(self, cfg: JudgeConfig, seconds: float = math.inf) -> None:
        self._cfg, self._seconds = cfg, seconds
        self._key = key_from(JUDGE_KEY, cfg.url)
        self._url = cfg.url.removeprefix(SEALED)
        self._until = math.inf
        self._failures = 0
        self._last_fault = Fault(DOWN)

    def ask(
        self,
        prompts: Sequence[str],
        read: Callable[[str], T | None],
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seeds: Sequence[int] = (),
    ) -> list[T | Fault]:
        """What `read` makes of the reply to each prompt, in order. A prompt is asked again where
        that is None. `max_tokens`: of a reply, by default `JudgeConfig.longest`. `seeds`: one a
        prompt, so that a server which repeats itself answers equal prompts apart; or none."""
        self._until = time.monotonic() + self._seconds
        self._failures = 0
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
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
            headers=headers,
        )
        pool = ThreadPoolExecutor(self._cfg.concurrency)
        asked = {"temperature": temperature, "max_tokens": max_tokens or self._cfg.longest}
        each = [{**asked, "seed": seed} for seed in seeds] or [asked] * len(prompts)
        one = partial(self._one, service, read)
        jobs: list[Future[T | Fault]] = []
        for options, prompt in zip(each, prompts, strict=True):
            jobs.append(pool.submit(one, options, prompt))
        late = Fault(DEADLINE, f"no verdict within {self._seconds:g} s")
        try:
            done, _ = wait(jobs, timeout=None if math.isinf(self._seconds) else self._seconds)
            results = [job.result() if job in done else late for job in jobs]
        finally:
            self._until = time.monotonic()  # what is under way is not tried again
            pool.shutdown(wait=False, cancel_futures=True)
            service.close()
        faults = {result.cause: result for result in results if isinstance(result, Fault)}
        for fault in faults.values():
            _log.warning("%s", fault)
        return results

    def check(
        self,
        prompt: str,
        read: Callable[[str], T | None],
        temperature: float = 0.0,
        seeds: Sequence[int] = (),
    ) -> None:
        """Ask once as `ask` does, before a run relies on it. InputError when nothing can be read
        from the reply, with what to change."""
        (result,) = self.ask([prompt], read, None, temperature, seeds)
        if not isinstance(result, Fault):
            return
        rule = (
            f"judge.url gives a usable reply, as judge.model={self._cfg.model}, before it is"
            " relied on"
        )
        step = "start it (ssp serve --judge MODEL), or correct judge.url"
        if result.cause == REFUSED:
            step = f"correct judge.url, judge.model or the key in {JUDGE_KEY}"
        elif result.cause == FORMAT:
            step = (
                "correct judge.url (with /v1); or take an instruction-tuned judge.model, or set"
                " judge.format=thought when it thinks before it answers"
            )
        raise InputError(rule, result, step)

    def _one(
        self,
        service: Service,
        read: Callable[[str], T | None],
        options: dict[str, float],
        prompt: str,
    ) -> T | Fault:
        """One prompt to its end."""
        wrong = said = ""
        for _ in range(self._cfg.retries + 1):
            try:
                content = self._reply(service, prompt, options)
            except Fault as fault:
                self._failures += 1
                self._last_fault = fault
                return fault
            text = _text(content)
            if text is None:
                wrong, said = "no chat completion", content.decode("utf-8", "replace")
                continue
            value = read(text)
            if value is not None:
                return value
            wrong, said = "not in the form that was asked for", text
        return Fault(FORMAT, f"{self._url}: {wrong}: {clean(said, self._key, 300)!r}")

    def _reply(self, service: Service, prompt: str, options: dict[str, float]) -> bytes:
        """The body of the reply. Raises Fault."""
        url = f"{self._url.rstrip('/')}/chat/completions"
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self._cfg.model, "messages": messages, **options}
        status, content = service.ask("POST", url, json=body)
        if status >= 300:
            raise Fault(REFUSED, f"{self._url}: status {status} {service.said(content)}")
        self._failures = 0
        return content

    def _allow(self) -> None:
        """Raise the Fault for which no further try is made."""
        if time.monotonic() > self._until:
            raise Fault(DEADLINE, f"no verdict within {self._seconds:g} s")
        if self._failures >= IN_A_ROW:
            raise self._last_fault


def _text(content: bytes) -> str | None:
    """The text of a chat completion, "" where it has none; None for another body."""
    try:
        text = json.loads(content)["choices"][0]["message"].get("content")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return text if isinstance(text, str) else ""
