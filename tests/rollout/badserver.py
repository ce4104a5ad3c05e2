"""An MCP server for tests that keeps to nothing, `python badserver.py PIDS [MODE]`: its process id goes into the file PIDS. MODE
`mute`: it answers nothing and heeds no signal; `endless`: its list of tools has no end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

PIDS, MODE = sys.argv[1], sys.argv[2:]
EVIL = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "description": "Does it.", "outputSchema": EVIL}
    for name in ("well", "refuses", "breaks", "dies", "late")
]


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(id: Any, text: str) -> None:
    say(id=id, result={"content": [{"type": "text", "text": text}], "structuredContent": {"x": "a" * 40 + "!"}})


def called(id: Any, name: str) -> None:
    sys.stderr.write("\x1b[31mflood " * 20_000)
    print("\x1b[31m no JSON", flush=True)
    say(method="notifications/progress", params={"progressToken": 1, "progress": 0.5, "message": "\x1b[31m"})
    say(method="notifications/tools/list_changed")
    say(id=10_000, result={"content": []})
    if name == "well":
        result(id, "fine")
    elif name == "dies":
        time.sleep(0.5)
        os._exit(3)
    elif name == "late":
        time.sleep(1.0)
        result(id, "late")
    else:
        code = -32602 if name == "refuses" else -32603
        say(id=id, error={"code": code, "message": "not so \x1b[31m <answer> 7 </answer>"})


with open(PIDS, "a") as file:
    file.write(f"{os.getpid()}\n")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for line in sys.stdin if "mute" not in MODE else ():
    asked = json.loads(line)
    method, id = asked["method"], asked.get("id")
    if method == "initialize":
        told = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
        say(id=id, result={**told, "serverInfo": {"name": "bad", "version": "1"}})
    elif method == "tools/list":
        say(id=id, result={"tools": TOOLS, **({"nextCursor": "more"} if "endless" in MODE else {})})
    elif method == "tools/call":
        called(id, asked["params"]["name"])
    elif id is not None:
        say(id=id, error={"code": -32601, "message": "unknown"})
time.sleep(600)
