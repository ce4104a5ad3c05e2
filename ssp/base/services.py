"""What every client of a service over HTTP needs: requests with a deadline and retries, the
service's key, and whether the service is on this machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ssp.base.errors import Fault, hold

if TYPE_CHECKING:
    import httpx  # where it is used: a tenth of a second, which --help does without

TRIES = 4
BACKOFF = 0.2
LONGEST_PAUSE = 5.0
LONGEST_REPLY = 256 * 2**20
SEALED = "untrusted:"
"""A command that looks at a run puts this before each place of code, and each address to which a key
would go, that the run's own config.yaml names."""
JUDGE_KEY, ENGINE_KEY = "SSP_JUDGE_KEY", "SSP_ENGINE_KEY"
"""Environment variables with the keys of the servers at judge.url and engine.url."""
_BUSY = (408, 409, 425, 429)


def sealed(value: str) -> bool:
    """Whether `value` may only be shown."""
    return value.startswith(SEALED)


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own, by its host."""
    import httpx

    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_from(variable: str, url: str, needed: bool = False) -> str:
    """The key in an environment variable, which goes to `url`; "" when it is not set. InputError
    when it is not set and `needed`, when the address is sealed, and for a key that is no word of
    ASCII."""
    key = os.environ.get(variable, "").strip()
    rule, step = "the endpoint's key is in the environment", f"export {variable}=..."
    hold(key or not needed, rule, f"{variable} is not set", step)
    rule = "a key goes to an address that a run's own config.yaml names only when that is trusted"
    step = f"look where it would go, then add --trust-code (or unset {variable})"
    hold(not key or not sealed(url), rule, f"{variable} for {url.removeprefix(SEALED)}", step)
    plain = key.isascii() and key.isprintable()
    rule = "a key is one line of ASCII characters"
    hold(plain, rule, f"the value of {variable} is not", "export it again")
    return key


def pause(attempt: int, backoff: float, asked: str) -> float:
    """Seconds before the try after `attempt` (from 0): they double, and are as many at least as a
    Retry-After header asks for."""
    seconds = backoff * 2**attempt
    with suppress(ValueError):  # a date, too
        if 0 < float(asked) < math.inf:
            seconds = max(seconds, float(asked))
    return min(seconds, LONGEST_PAUSE)


def clean(text: str, secret: str, most: int) -> str:
    """One printable line of bounded length, without the secret."""
    if secret:
        text = text.replace(secret, "***")
    line = " ".join(text.split())
    return "".join(filter(str.isprintable, line))[:most]


class Service:
    """Requests to one HTTP service, each with a deadline and retries. Safe in several threads.

    `causes`: of a Fault when nobody answers, and of one when the answer is too long. `timeout`:
    seconds for one request, answer included. A request is tried `tries` times, with pauses of
    `backoff`·2^n seconds (a server's Retry-After counts, up to LONGEST_PAUSE). `allow` is called
    before every try, and may raise. `secret` is blotted out of messages. `client`: what
    httpx.Client takes besides."""

    def __init__(
        self,
        causes: tuple[str, str],
        timeout: float,
        tries: int = TRIES,
        backoff: float = BACKOFF,
        transport: httpx.BaseTransport | None = None,
        allow: Callable[[], None] = lambda: None,
        secret: str = "",
        **client: Any,
    ) -> None:
        import httpx

        self._down, self._wrong = causes
        self._timeout, self._tries, self._backoff = timeout, tries, backoff
        self._allow, self._secret = allow, secret
        client = {"trust_env": False, **client}
        self._client = httpx.Client(timeout=timeout, transport=transport, **client)

    def ask(self, method: str, url: str, **request: Any) -> tuple[int, bytes]:
        """Status (below 500) and content of the reply. `request`: what httpx takes. Fault after the
        last try."""
        import httpx

        trouble = ""
        for attempt in range(self._tries):
            asked = ""
            self._allow()
            try:
                status, asked, content = self._once(method, url, request)
            except (httpx.RequestError, httpx.InvalidURL) as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if status < 500 and status not in _BUSY:
                    return status, content
                trouble = f"status {status} {self.said(content)}".rstrip()
            if attempt + 1 < self._tries:
                time.sleep(pause(attempt, self._backoff, asked))
        trouble = clean(trouble, self._secret, 1000)
        raise Fault(self._down, f"{url}: {trouble} ({self._tries} tries)")

    def said(self, content: bytes) -> str:
        """What a server said, in one short line, without the secret."""
        return clean(content.decode("utf-8", "replace"), self._secret, 200)

    def _once(self, method: str, url: str, request: dict[str, Any]) -> tuple[int, str, bytes]:
        """Status, Retry-After header and content of one request. httpx's own time-out is a
        chunk's, hence the clock here."""
        import httpx

        deadline = time.monotonic() + self._timeout
        content = bytearray()
        with self._client.stream(method, url, **request) as reply:
            for chunk in reply.iter_bytes():
                content += chunk
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"answer not complete after {self._timeout:g} s")
                if len(content) > LONGEST_REPLY:
                    raise Fault(self._wrong, f"{url}: answer above {LONGEST_REPLY:,} bytes")
            return reply.status_code, reply.headers.get("retry-after", ""), bytes(content)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
