"""Which settings of the search may stand together."""

from __future__ import annotations

from urllib.parse import urlsplit

from ssp.base.errors import InputError
from ssp.config import own
from ssp.config.rules import Rule, is_address
from ssp.config.schema import Config
from ssp.search.online.engines import engine


def retriever_has_an_address(cfg: Config) -> None:
    """A search server has a base address, without a password in it: run folders and messages show it."""
    url = cfg.retriever.url
    if url and not own.sealed(url) and (not is_address(url) or "@" in urlsplit(url).netloc):
        rule = "retriever.url is the http(s) address of a search server, without user and password"
        raise InputError(rule, "an @ before the host" if "@" in url else repr(url), "e.g. http://127.0.0.1:8000")


def engine_is_known(cfg: Config) -> None:
    """An engine of the web is one of the table, with what it needs."""
    if cfg.retriever.online.engine:
        engine(cfg.retriever.online.engine)


RULES: tuple[Rule, ...] = (retriever_has_an_address, engine_is_known)
