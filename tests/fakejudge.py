"""A judge over HTTP on 127.0.0.1 whose behaviour is a function: chat completions as an OpenAI-compatible server gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests import httpfakes

HANG = "hang"


@dataclass
class Reply:
    """What goes back: status, text of the completion, headers; `raw` replaces the whole body."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        if self.status != 200:
            return json.dumps({"error": {"message": self.text, "code": self.status}}).encode()
        message = {"role": "assistant", "content": self.text}
        return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


@dataclass
class FakeJudge:
    """`answer(item, number)`: item is the prompt's JSON object, number counts requests from 1."""

    answer: Callable[[dict[str, Any], int], Reply | str]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def requests(self) -> int:
        return len(self.bodies)

    @property
    def items(self) -> list[dict[str, Any]]:
        return [item_of(body) for body in self.bodies]

    def reply(self, body: dict[str, Any], key: str | None) -> Reply:
        with self.lock:
            self.bodies.append(body)
            self.keys.append(key)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            number = len(self.bodies)
        try:
            found = self.answer(item_of(body), number)
            if found == HANG:
                self.over.wait(30)
            return found if isinstance(found, Reply) else Reply(found)
        finally:
            with self.lock:
                self.at_once -= 1


def item_of(body: dict[str, Any]) -> dict[str, Any]:
    """The JSON object at the end of the prompt."""
    text = body["messages"][-1]["content"]
    return dict(json.loads(text[text.rindex('{"question"') :]))


@contextmanager
def serving(answer: Callable[[dict[str, Any], int], Reply | str]) -> Iterator[FakeJudge]:
    judge = FakeJudge(answer)

    def reply(asked: httpfakes.Asked) -> tuple[int, dict[str, str], bytes]:
        assert asked.path == "/v1/chat/completions"
        found = judge.reply(json.loads(asked.body), asked.headers.get("Authorization"))
        return found.status, {"Content-Type": "application/json", **found.headers}, found.body()

    with httpfakes.server(reply) as base:
        judge.url = f"{base}/v1"
        try:
            yield judge
        finally:
            judge.over.set()
