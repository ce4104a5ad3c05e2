"""Which settings of the search may stand together."""

from __future__ import annotations

from urllib.parse import urlsplit

from ssp.base.errors import InputError
from ssp.config import own
from ssp.config.rules import Rule, is_address
from ssp.config.schema import Config


def retriever_has_an_address(cfg: Config) -> None:
    """A search server has a base address, without a password in it: run folders and messages show it."""
    urls = {"retriever.url": cfg.retriever.url, "retriever.online.url": cfg.retriever.online.url}
    for key, url in urls.items():
        if not url or own.sealed(url):
            continue
        if not is_address(url) or "@" in urlsplit(url).netloc:
            rule = f"{key} is the http(s) address of a search server, without user and password"
            raise InputError(rule, "an @ before the host" if "@" in url else repr(url), "e.g. http://127.0.0.1:8000")


def data_corpus_has_one_source(cfg: Config) -> None:
    """data.corpus is searched by the run's own shards, by a server, or by an engine of the web."""
    if cfg.retriever.url and cfg.retriever.online.engine:
        rule = "data.corpus is searched at retriever.url or by retriever.online.engine, not both"
        raise InputError(rule, f"{cfg.retriever.url} and {cfg.retriever.online.engine}", "leave one of them out")


def hedges_have_a_replica(cfg: Config) -> None:
    """A hedged search asks another replica of the shard."""
    block = cfg.retriever
    if block.hedge and block.replicas == 1:
        rule = "retriever.hedge asks another replica, so retriever.replicas is at least 2"
        raise InputError(rule, f"hedge={block.hedge:g}, replicas=1", "set retriever.replicas=2, or hedge=0")
    if block.hedge >= block.timeout:
        rule = "retriever.hedge is shorter than retriever.timeout"
        raise InputError(rule, f"{block.hedge:g} against {block.timeout:g} s", "lower retriever.hedge")


RULES: tuple[Rule, ...] = (retriever_has_an_address, data_corpus_has_one_source, hedges_have_a_replica)
