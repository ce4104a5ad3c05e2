"""`ssp serve`: a search server that speaks Search-R1's `/retrieve` and ReSearch's `/search` and
`/batch_search`.

A corpus is searched exactly as training searches it; SIGTERM and Ctrl-C finish what is under
way."""

import argparse
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import uvicorn

from actors import cluster
from launch.cli import Parser, address, bind, options, run, whole
from ssp.base.errors import InputError
from ssp.base.extras import extra
from ssp.base.printable import say
from ssp.config import load
from ssp.config.schema import Config
from ssp.config.sources import RetrieverConfig
from ssp.game import corpora
from ssp.search.router import Router
from ssp.search.serving.api import CORPUS, SearchApi, Served
from ssp.search.serving.forms import MAX_TOPK

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients keep theirs, so that none meets a
closing one."""
OVER_RAY = 8
"""Searches under way at once where shards are actors: this process only waits for them."""

FLAGS = [one.name for one in fields(RetrieverConfig) if one.name not in ("url", "topk", "online")]
"""Settings `retriever.<name>` that are flags of the command."""


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. Raises InputError for a bad index, corpus or address, a taken port
    included."""
    names = {word.partition("=")[0] for word in argv}
    if "--judge" in names:
        from launch import judgeserver

        return judgeserver.main(argv)
    if "--policy" in names:
        return int(extra("policyserver", "ssp serve --policy", "command").main(argv))
    summary = (
        "Serve a corpus: POST /retrieve, /search, /batch_search, /access, /rerank; GET /status,"
        " /metrics."
    )
    args = options(argv, "serve", summary, flags)
    cfg = configured(args)
    block = cfg.retriever
    over_ray = max(block.shards, block.replicas) > 1
    workers = args.workers
    if not workers and over_ray:
        workers = OVER_RAY
    elif not workers:
        # BM25 holds Python's lock; models and faiss let it go, so that two share the cores
        lets_go = corpora.dense(Path(cfg.data.corpus)) or block.reranker
        workers = min(2, os.cpu_count() or 1) if lets_go else 1
    # Each worker's share of the cores; read when torch and faiss are first imported.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    with bind(args.host, args.port) as listener, ExitStack() as end:
        # joined before the server: Ray takes over the signals
        if over_ray:
            corpora.check(cfg, [CORPUS])
            cluster.environment(cfg.ray)  # before Ray is imported
            from actors import fleet

            cluster.connect(cfg.ray, cfg.placement.cpus * fleet.size(cfg))
            end.callback(cluster.disconnect)
        app = SearchApi(args.topk, block.timeout, block.max_batch, block.window, workers)
        url = address(args.host, listener.getsockname()[1])
        return running(app, listener, lambda: loaded(cfg, end), url)


def running(app: SearchApi, listener: socket.socket, load: Callable[[], Served], where: str) -> int:
    """Serve `app` until a signal; it answers /health at once, and searches when `load` is done.
    Raises what that raises."""
    server = uvicorn.Server(settings(app))
    trouble = []

    def opened() -> None:
        try:
            served = load()
            app.open(served)
            say(f"serving {served.about['documents']:,} documents on {where}")
        except BaseException as error:  # noqa: BLE001 (the command raises it)
            trouble.append(error)
            server.should_exit = True

    def stop(*_: object) -> None:
        server.should_exit = True

    ours = threading.current_thread() is threading.main_thread()
    # uvicorn ends in good order on SIGTERM and then raises it again, which is to be no death.
    before = signal.signal(signal.SIGTERM, stop) if ours else None
    try:
        threading.Thread(target=opened, daemon=True, name="load").start()
        server.run(sockets=[listener])
    finally:
        app.close()
        if ours:
            signal.signal(signal.SIGTERM, before)
    if trouble:
        raise trouble[0]
    return 0


def settings(app: SearchApi) -> uvicorn.Config:
    """How the app is served. Its own limit counts requests; uvicorn's would count idle connections
    too."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        date_header=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(app.timeout) + 1,
    )


def configured(args: argparse.Namespace) -> Config:
    """The configuration that the flags stand for. InputError when a value is out of its range."""
    cfg = Config()
    cfg.ray.dashboard = -1
    cfg.data.corpus = str((args.index or args.corpus).absolute())
    cfg.data.eval = []
    if args.index and not args.index.is_dir():
        step = "build one: ssp index; or serve a file with --corpus"
        raise InputError("an index is a folder", args.index, step)
    block = cfg.retriever
    block.topk = args.topk
    for name in FLAGS:
        setattr(block, name, getattr(args, name))
    return load.checked(cfg)


def loaded(cfg: Config, end: ExitStack) -> Served:
    """What the configuration names: in this process, or over actors, which `end` stops. InputError
    for a bad corpus."""
    if max(cfg.retriever.shards, cfg.retriever.replicas) <= 1:
        search = corpora.search(cfg, [CORPUS])
        assert isinstance(search, Router)
        return _served(cfg, search, lambda: [1])
    from actors import fleet

    run = f"serve-{os.getpid()}"
    actors = fleet.start(cfg, run)
    end.callback(fleet.stop, run, actors)
    fleet.ready(actors, cfg.ray.start_timeout)
    router = fleet.connect_router(cfg, run)
    reached = router.corpora[CORPUS].fleet
    assert isinstance(reached, fleet.RayFleet)
    return _served(cfg, router, lambda: [reached.up[i] for i in range(len(reached.spans))])


def _served(cfg: Config, router: Router, up: Callable[[], Sequence[int]]) -> Served:
    """What the server answers from. `up`: living replicas of each shard."""
    corpus = router.corpora[CORPUS]
    about = {"corpus": cfg.data.corpus, "documents": corpus.total, "kind": corpus.options.kind}
    about |= {"retriever": corpus.retriever, "reranker": cfg.retriever.reranker}

    def shards() -> list[dict[str, Any]]:
        states = []
        for (first, last), replicas in zip(corpus.fleet.spans, up(), strict=True):
            state = "up" if replicas else "down"
            rows = last - first
            states.append({"first": first, "rows": rows, "state": state, "replicas": replicas})
        return states

    # With actors the router holds one for every model that there may be; the setting says whether
    # there is a reranker.
    reranker = corpus.reranker if cfg.retriever.reranker else None
    held = corpora.documents(Path(cfg.data.corpus), corpus.fleet)
    access = None if held is None else held.named
    return Served(router, corpus.options, reranker, about, shards, access)


def flags(parser: Parser) -> None:
    """The options of `ssp serve`."""
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--index", type=Path, help="index folder made by ssp index")
    source.add_argument(
        "--corpus",
        type=Path,
        help="corpus file (jsonl, also compressed), indexed in memory with BM25",
    )
    source.add_argument(
        "--judge", metavar="MODEL", help="a judge model instead; see ssp serve --judge MODEL --help"
    )
    source.add_argument(
        "--policy", metavar="RUN", help="a policy instead; see ssp serve --policy RUN --help"
    )
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    add("--port", type=whole(0, 65535), default=8000, help="0 takes a free port (default 8000)")
    add("--topk", type=whole(1, MAX_TOPK), default=3, help="documents a query by default (3)")
    defaults = RetrieverConfig(shards=1)
    for name in FLAGS:
        usual = getattr(defaults, name)
        said = f"retriever.{name} of docs/settings.md"
        if usual:
            said += f" (default {usual})"
        option = f"--{name.replace('_', '-')}"
        add(option, metavar="X", type=type(usual), default=usual, help=said)
    add("--workers", type=whole(1, 256), help="searches at once (default: by what is served)")


if __name__ == "__main__":
    raise SystemExit(run(main))
