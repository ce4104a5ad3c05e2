"""A search server under load for long: does its memory stay flat, does every request get its answer?

    python tests/bench/serve_soak.py --requests 100000 --clients 64
    python tests/bench/serve_soak.py --index DIR -- --kind dense      # after --: flags of ssp serve

Starts `ssp serve` over --corpus, --index, or a corpus that it makes, and keeps --clients requests under way. Every 50th
request is one of the odd ones: a batch of 128, a bad body, a connection that is cut. Prints one line `RESULT {json}` with
requests a second, errors, and the server's memory (PSS of the process, MiB) after the warm-up (a tenth of the requests),
at the end, at its highest, and the spread in per cent. Exit code 1 when there was an error or the spread is above --flat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
ODD = 50


def corpus(path: Path, rows: int, seed: int) -> list[str]:
    """Write a corpus of `rows` documents of 100 words, with a long tail, and give words to ask for."""
    random.seed(seed)
    vocabulary = [f"word{i}" for i in range(30_000)]
    weights = [1.0 / (i + 10) for i in range(len(vocabulary))]
    with path.open("w") as stream:
        for row in range(rows):
            words = " ".join(random.choices(vocabulary, weights, k=100))
            stream.write(json.dumps({"id": str(row), "contents": f'"{row}"\n{words}'}) + "\n")
    return vocabulary


def queries(path: Path, seed: int) -> list[str]:
    """Four words each, of random documents."""
    random.seed(seed + 1)
    with path.open() as stream:
        lines = [json.loads(line) for line, _ in zip(stream, range(20_000), strict=False)]
    texts = [line.get("contents") or line["text"] for line in lines]
    return [" ".join(random.sample(random.choice(texts).split(), 4)) for _ in range(20_000)]


class Client:
    """One keep-alive connection, reopened when it is cut. Reads replies with a content-length, and no more."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, cut: bool = False) -> tuple[int, bytes]:
        """Status and body of the reply; with `cut` the connection ends in the middle of the request: (0, b"")."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: s\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + (body[: len(body) // 2] if cut else body))
        if cut:
            await writer.drain()
            self.close()
            return 0, b""
        status = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in status.split(b"\r\n")[1:-2])
        return int(status.split(b" ", 2)[1]), await reader.readexactly(int(fields[b"content-length"]))

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Soak:
    """Requests until `total` were sent; errors by what happened."""

    def __init__(self, asked: list[str], total: int, server: psutil.Process) -> None:
        self._asked, self._total, self._server = asked, total, server
        self.sent, self.errors, self.memory = 0, dict[str, int](), list[float]()

    async def run(self, port: int, clients: int) -> float:
        """Seconds that it took."""
        began = time.perf_counter()
        await asyncio.gather(*[self._client(Client(port)) for _ in range(clients)])
        return time.perf_counter() - began

    async def _client(self, client: Client) -> None:
        while self.sent < self._total:
            at, self.sent = self.sent, self.sent + 1
            if at % max(1, self._total // 100) == 0 and at >= self._total // 10:
                self.memory.append(self._server.memory_full_info().pss / 2**20)
            try:
                trouble = await self._one(client, at)
            except (OSError, EOFError, ValueError, KeyError) as error:
                trouble = f"{type(error).__name__}: {error}"
                client.close()
            if trouble:
                self.errors[trouble] = self.errors.get(trouble, 0) + 1
        client.close()

    async def _one(self, client: Client, at: int) -> str:
        """Send request number `at`; what was wrong with its reply, or nothing."""
        odd = at % ODD
        if odd == 1:
            status, _ = await client.post("/retrieve", b'{"queries": [3]}')
            return "" if status == 422 else f"status {status} for a bad body"
        if odd == 2:
            await client.post("/retrieve", json.dumps({"queries": ["cut"] * 100}).encode(), cut=True)
            return ""
        count = 128 if odd == 3 else 1
        asked = [self._asked[(at * 7 + i) % len(self._asked)] for i in range(count)]
        if odd % 2:
            status, body = await client.post("/batch_search", json.dumps({"query": asked, "top_n": 3}).encode())
            found = json.loads(body)
        else:
            asked_so = {"queries": asked, "topk": 3, "return_scores": True}
            status, body = await client.post("/retrieve", json.dumps(asked_so).encode())
            found = json.loads(body)["result"]
        right = status == 200 and len(found) == count and all(len(documents) == 3 for documents in found)
        return "" if right else f"status {status}, {[len(documents) for documents in found][:3]} documents"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flat", type=float, default=5.0, help="per cent that memory may move after the warm-up")
    parser.add_argument("--corpus", type=Path, help="jsonl; queries are words of its documents")
    parser.add_argument("--index", type=Path, help="index folder over --corpus")
    parser.add_argument("flags", nargs="*", help="after --: flags of ssp serve")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = args.corpus or Path(folder) / "corpus.jsonl"
        if args.corpus is None:
            corpus(path, args.rows, args.seed)
        served = ["--index", str(args.index)] if args.index else ["--corpus", str(path)]
        command = [sys.executable, "-m", "launch.serve", *served, "--port", "0", *args.flags]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("serving"):
            raise SystemExit(f"the server did not start: {line}")
        server = psutil.Process(process.pid)
        soak, loading = Soak(queries(path, args.seed), args.requests, server), sum(server.cpu_times()[:2])
        seconds = asyncio.run(soak.run(int(line.rsplit(":", 1)[1]), args.clients))
        cpu = sum(server.cpu_times()[:2]) - loading
    first, memory = soak.memory[0], soak.memory
    spread = 100 * max(abs(value - first) for value in memory) / first
    figures = {
        "requests": soak.sent, "clients": args.clients, "requests_per_s": round(soak.sent / seconds, 1),
        "server_cpu_ms_per_request": round(1000 * cpu / soak.sent, 3),
        "errors": soak.errors, "pss_mib_after_warm_up": round(first, 1), "pss_mib_at_end": round(memory[-1], 1),
        "pss_mib_highest": round(max(memory), 1), "spread_percent": round(spread, 2),
    }  # fmt: skip
    print("RESULT " + json.dumps(figures))
    return 1 if soak.errors or spread > args.flat else 0


if __name__ == "__main__":
    raise SystemExit(main())
