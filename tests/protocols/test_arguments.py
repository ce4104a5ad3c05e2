"""What a policy hears of a tool's arguments where its chat template shows no tools."""

from __future__ import annotations

import time
from typing import Any

import families
import pytest

from ssp.base.errors import InputError
from ssp.game import protocols
from ssp.game.protocols import schemas
from ssp.game.protocols.calls import Offer
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout.tools import READ, function
from ssp.learning import coldstart
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build

TAGS = [name for name in protocols.names() if name != "chat-tools"]


def lookup(word: str, limit: int = 3, mode: str | None = None, key: str = "") -> str:
    """Explains a word."""
    return word


lookup.parameters = {  # type: ignore[attr-defined]
    "type": "object",
    "properties": {
        "word": {"type": "string", "description": "what to\nexplain"},
        "limit": {"type": "integer", "default": 3},
        "mode": {"enum": ["short", "long", None]},
    },
    "required": ["word"],
}


@pytest.mark.parametrize("name", TAGS)
def test_every_tag_protocol_tells_types_defaults_names_and_meanings(name: str) -> None:
    protocol = protocols.get(name).offering([function(lookup, "here").offer])
    told = protocol.messages("solver", dict.fromkeys(("question",), "Q"))[0]["content"]
    lines = [
        "Explains a word.",
        "- word: string, required. what to explain",
        "- limit: integer, default 3",
        '- mode: one of "short", "long", null',
    ]
    for line in lines:
        assert line in told, line
    assert '"limit": <limit>' in told and '"word": "<word>"' in told, "what is no text stands without quotes"


@pytest.mark.parametrize("name", TAGS)
def test_of_tools_of_ours_no_more_is_told(name: str) -> None:
    told = protocols.get(name).offering([READ]).messages("solver", {"question": "Q"})[0]["content"]
    assert "- document" not in told and READ.description.split(":")[0] in " ".join(told.split())


POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, "string or null"),
        ({"type": ["string", "integer"]}, "string or integer"),
        ({"$ref": "#/$defs/Point"}, "{x: number, y?: number}"),
        ({"allOf": [{"$ref": "#/$defs/Point"}]}, "{x: number, y?: number}"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object of integer"),
        ({"const": 1}, "1"),
        ({"$ref": "http://elsewhere/x.json"}, "any value"),
        ({}, "any value"),
        (True, "any value"),
    ],
)
def test_types_in_words(part: Any, words: str) -> None:
    schema = {"properties": {"a": part}, "$defs": {"Point": POINT}}
    (line,) = schemas.arguments(schema)
    assert line.removeprefix("- a: ").partition(", default")[0] == words


def test_a_schema_that_names_itself_has_an_end() -> None:
    tree: dict[str, Any] = {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/T"}, "right": {"$ref": "#/$defs/T"}},
    }
    began = time.monotonic()
    (line,) = schemas.arguments({"properties": {"root": {"$ref": "#/$defs/T"}}, "$defs": {"T": tree}})
    assert time.monotonic() - began < 1 and len(line) < 10_000
    loop = {"$ref": "#/$defs/L"}
    assert schemas.arguments({"properties": {"a": loop}, "$defs": {"L": loop}}) == ["- a: any value"]


MANY = """
def made(number):
    def tool(query: str, limit: int = 10) -> str:
        return query
    tool.__name__, tool.__doc__ = f"tool_{number:02}", "Does a thing. " * 30
    return tool
"""


def test_a_prompt_that_has_no_room_for_its_tools_is_refused(tmp_path: Any) -> None:
    (tmp_path / "many.py").write_text(MANY + "\n".join(f"tool_{n:02} = made({n})" for n in range(60)))
    tools = ", ".join(f"{tmp_path / 'many.py'}:tool_{n:02}" for n in range(60))
    cfg = load("quickstart", [f"solver.tools=[search, {tools}]"])
    with pytest.raises(InputError, match=r"solver.limits.total_tokens has room for a turn.*60 tools") as refused:
        build.renderer(cfg, "solver", coldstart.ARTEFACT)
    assert "raise it by" in refused.value.next_step
    few = load("quickstart", ["solver.tools=[search, read]"])
    assert build.renderer(few, "solver", coldstart.ARTEFACT).least("solver") < few.solver.limits.total_tokens
    chat = Renderer(protocols.get("chat-tools").offering([Offer("a", "x" * 400, {"type": "object"})]), families.qwen())
    plain = Renderer(protocols.get("chat-tools"), families.qwen())
    assert chat.least("solver") > plain.least("solver")
