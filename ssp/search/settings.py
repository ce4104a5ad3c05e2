"""Which settings of the search may stand together."""

from ssp.base.extras import extra
from ssp.config.rules import Rule, check_address
from ssp.config.schema import Config


def retriever_has_an_address(cfg: Config) -> None:
    """A search server is at an address."""
    if cfg.retriever.url:
        check_address(
            "retriever.url", cfg.retriever.url, "e.g. retriever.url=http://127.0.0.1:8000"
        )


def engine_is_known(cfg: Config) -> None:
    """An engine of the web is one of the extra's table, with what it needs."""
    name = cfg.retriever.online.engine
    if name:
        extra("online", f"retriever.online.engine={name}", "engines").engine(name)


RULES: tuple[Rule, ...] = (retriever_has_an_address, engine_is_known)
