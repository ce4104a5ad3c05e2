"""Debian's Chromium without a window, driven over its debugging protocol.

Owns the process and its folder. Promises that nothing of it is left, and that every request, error and exception of a page
is kept for the test to look at. Skips where there is no Chromium."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-extensions --disable-dev-shm-usage --remote-debugging-port=0
    --window-size=1440,900""".split()
CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "PageDown": 34, "End": 35, "Home": 36}
CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Chrome:
    """One tab. Every wait has a deadline."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, runner: asyncio.Runner) -> None:
        self._socket, self._runner = socket, runner
        self._ids = itertools.count(1)
        self.requests: list[str] = []
        self.errors: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and its answer; events that come before it are noted."""
        return self._runner.run(asyncio.wait_for(self._call(method, params), 60))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            said = json.loads((await self._socket.receive()).data)
            if said.get("id") == number:
                assert "error" not in said, (method, said["error"])
                return dict(said["result"])
            self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:600])
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        said = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def until(self, expression: str, seconds: float = 30.0) -> Any:
        end = time.monotonic() + seconds
        while not (found := self.run(expression)):
            assert time.monotonic() < end, (expression, self.errors, self.run("document.body.innerText")[:800])
        return found

    def open(self, url: str, dark: bool = False) -> None:
        """Go there, and wait until the page has drawn all that it has."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.until("typeof SSP === 'object' && SSP.ready === true")

    def click(self, selector: str) -> None:
        """As a hand does: on the middle of what is there."""
        where = f"document.querySelector({json.dumps(selector)})"
        box = self.run(
            f"(() => {{ const e = {where}; e.scrollIntoView({{block: 'nearest'}}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def key(self, name: str) -> None:
        text = {"text": name} if len(name) == 1 else {"text": "\r"} if name == "Enter" else {}
        code = {"windowsVirtualKeyCode": CODES.get(name, ord(name[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, **code)

    def shot(self, path: Path) -> None:
        """A picture of what is in sight."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def settled(self) -> None:
        self.run("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(d, 0))))")


@contextmanager
def chrome() -> Iterator[Chrome]:
    found = next((found for name in NAMES if (found := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        port = Path(folder) / "DevToolsActivePort"
        log = Path(folder) / "log"
        with log.open("wb") as out:
            command = [found, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
            process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while not (port.is_file() and port.read_text().count("\n")):
                assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-2000:]
                time.sleep(0.05)
            with asyncio.Runner() as runner:
                yield from _tab(int(port.read_text().splitlines()[0]), runner)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _tab(port: int, runner: asyncio.Runner) -> Iterator[Chrome]:
    async def connect() -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
        session = aiohttp.ClientSession()
        async with session.get(f"http://127.0.0.1:{port}/json/list") as reply:
            (tab, *_) = [each for each in await reply.json() if each["type"] == "page"]
        return session, await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)

    session, socket = runner.run(connect())
    try:
        made = Chrome(socket, runner)
        for domain in ("Page", "Runtime", "Network", "Log"):
            made.call(f"{domain}.enable")
        yield made
    finally:
        runner.run(socket.close())
        runner.run(session.close())
