"""Which judge settings may stand together."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

LLM = ["judge.kind=llm", "judge.url=http://127.0.0.1:5000/v1", "judge.model=m"]


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        (["judge.kind=llm", "judge.url=http://127.0.0.1:5000/v1"], "judge.model"),
        (["referee.verifier=judge", "referee.evidence=none"], "judge.model"),
        (["judge.kind=llm", "judge.model=m"], "judge.url"),
        (["referee.verifier=judge", "referee.evidence=none", "judge.model=m"], "judge.url"),
        ([*LLM, "judge.url=127.0.0.1:5000"], "judge.url"),
        ([*LLM, "judge.url=http://[1/v1"], "judge.url"),
        ([*LLM, "judge.url=http://h:port/v1"], "judge.url"),
        ([*LLM, "judge.url=ftp://h/v1"], "judge.url"),
        ([*LLM, "judge.format=prose"], "judge.format"),
        ([*LLM, "judge.format=json", "judge.max_tokens=63"], "judge.max_tokens"),
        (["judge.kind=oracle"], "judge.kind"),
    ],
)
def test_what_is_refused(typed: list[str], word: str) -> None:
    with pytest.raises(InputError) as found:
        load("quickstart", typed)
    assert word in found.value.rule


def test_a_password_in_the_address_is_refused_unseen() -> None:
    with pytest.raises(InputError, match="without user, password and query") as found:
        load("quickstart", [*LLM, "judge.url=http://me:SENTINEL@host/v1"])
    assert "SENTINEL" not in str(found.value)


@pytest.mark.parametrize(
    "typed",
    [
        LLM,
        [*LLM, "judge.url=https://judge.example/v1"],
        [*LLM, "judge.format=json"],
        [*LLM, "referee.verifier=judge", "referee.evidence=none"],
        ["judge.url=", "judge.format=json"],
    ],
)
def test_what_is_allowed(typed: list[str]) -> None:
    load("quickstart", typed)
