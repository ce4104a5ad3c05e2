"""The rules about what may stand together; each wing has its own."""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from ssp.base.errors import InputError, Refusals, hold, refuse
from ssp.config import own
from ssp.config.schema import Config

Rule = Callable[[Config], None]
"""Raises InputError for settings that cannot stand together."""
RoleRule = Callable[[Config, str], None]
"""The same, of one role's settings."""


def refused(cfg: Config, rules: Sequence[Rule]) -> list[InputError]:
    """What each of `rules` refuses, without repetitions."""
    errors: dict[str, InputError] = {}
    for rule in rules:
        try:
            rule(cfg)
        except Refusals as several:
            for error in several.each:
                errors.setdefault(error.rule, error)
        except InputError as error:
            errors.setdefault(error.rule, error)
    return list(errors.values())


def each_role(rule: RoleRule) -> Rule:
    """A rule about one role, asked of all that play."""
    return _of_each(rule, lambda cfg: cfg.roles)


def each_block(rule: RoleRule) -> Rule:
    """A rule about the settings of one role, asked of all that have some."""
    return _of_each(rule, lambda cfg: tuple(cfg.blocks))


def _of_each(rule: RoleRule, names: Callable[[Config], Sequence[str]]) -> Rule:
    @functools.wraps(rule)
    def asked(cfg: Config) -> None:
        refuse(refused(cfg, [partial(_of, rule, role) for role in names(cfg)]))

    return asked


def _of(rule: RoleRule, role: str, cfg: Config) -> None:
    rule(cfg, role)


def check_address(key: str, url: str, step: str) -> None:
    """A server has an http(s) base address, without what is secret: run folders and messages show
    it."""
    if own.sealed(url):
        return
    try:
        parts = urlsplit(url)
        holds = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = "@" in parts.netloc
    except ValueError:  # a port that is none, an unclosed bracket
        holds, secret = False, "@" in url
    rule = f"{key} is the http(s) base address of a server, without user, password and query"
    telling = secret or "?" in url
    hold(
        holds and not telling, rule, "an @ before the host, or a ?" if telling else repr(url), step
    )
