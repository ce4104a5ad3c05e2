"""Which settings of the judge may stand together: whom it asks, and whether a reply can be whole."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from ssp.base.errors import InputError
from ssp.config.rules import is_address
from ssp.config.schema import Config

JSON_VERDICT = 64
"""Tokens that a JSON verdict takes, at least."""


def judge_has_a_model(cfg: Config) -> None:
    """Whoever is asked has a name: of the endpoint's model, or of an engine's folder."""
    if (cfg.judge.kind != "exact" or cfg.referee.verifier == "judge") and not cfg.judge.model:
        raise InputError(
            "judge.model is the endpoint's name of its model; for judge.kind=engine, a model folder",
            f"judge.kind={cfg.judge.kind}, referee.verifier={cfg.referee.verifier}, and no judge.model",
            "set judge.model=...",
        )


def judge_has_an_address(cfg: Config) -> None:
    """An endpoint has a base address, without user and password."""
    if cfg.judge.kind == "engine" and cfg.referee.verifier == "judge":
        raise InputError(
            "referee.verifier=judge asks the endpoint of judge.url, so judge.kind is llm or exact",
            "judge.kind=engine",
            "set judge.kind=llm, or referee.verifier=frozen",
        )
    if cfg.judge.kind != "llm" and cfg.referee.verifier != "judge":
        return
    if not is_address(cfg.judge.url):
        raise InputError(
            "judge.url is the http(s) base address of an OpenAI-compatible endpoint",
            repr(cfg.judge.url),
            "e.g. judge.url=http://127.0.0.1:5000/v1, which ssp serve --judge MODEL --port 5000 starts",
        )
    if "@" in urlsplit(cfg.judge.url).netloc:
        raise InputError(
            "judge.url holds no user and password",
            "an @ before the host",
            "put the key into the environment variable that judge.key_env names",
        )


def judge_can_finish_its_reply(cfg: Config) -> None:
    """A JSON verdict has a sentence of reason, which a few tokens would cut."""
    if cfg.judge.kind != "exact" and cfg.judge.format == "json" and cfg.judge.max_tokens < JSON_VERDICT:
        raise InputError(
            f"judge.max_tokens is at least {JSON_VERDICT} for judge.format=json",
            f"judge.max_tokens={cfg.judge.max_tokens}",
            "set judge.max_tokens=256",
        )


RULES: tuple[Callable[[Config], None], ...] = (judge_has_a_model, judge_has_an_address, judge_can_finish_its_reply)
