"""Transcripts of other agents as traces of a warm start: OpenAI's messages, ShareGPT's conversations,
Search-R1's responses. Their prompts are left out, since the protocol makes those; a transcript whose
turns do not all search, and then answer, is refused by its line."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssp.base.episode import SOLVER
from ssp.base.errors import hold
from ssp.data.containers import rows
from ssp.data.readers import MARKER, asked
from ssp.data.rows import Row, show
from ssp.game.protocols import Protocol
from ssp.game.protocols.calls import written

WHO = {"human": "user", "gpt": "assistant", "observation": "tool", "function_response": "tool"}
"""ShareGPT's names of the speakers → OpenAI's."""
FORMS = {
    "messages": "OpenAI messages: a `tool_calls` with a `query` is a search, the last text the answer",
    "conversations": "ShareGPT: the same, or in the tags of the protocol",
    "response": "Search-R1: question and response, in the tags of the protocol",
}
"""Column by which a transcript is known → what it is."""
_WRAPPED = re.compile(r"<(\w+)>(.*)</\1>", re.DOTALL)
_SHOWN = re.compile(r"Doc \d+\s*\(Title: (.*?)\)\s*(.*?)\s*(?=Doc \d+\s*\(Title:|\Z)", re.DOTALL)


@dataclass
class _Said:
    """What one turn says, and what came back. `text`: as it stood, where it has tags."""

    text: str
    thought: str = ""
    queries: tuple[str, ...] = ()
    final: str = ""


def read(paths: Sequence[Path], protocol: Protocol) -> list[dict[str, Any]]:
    """One trace a transcript (`ssp.learning.warmup.traces`), its turns as `protocol` writes them.
    InputError for a row that is none, and one that `protocol` cannot say."""
    made = [_trace(row, protocol) for path in paths for row in rows(path)]
    hold(made, "a file of transcripts has at least one", ", ".join(map(str, paths)), "check it")
    return made


def _trace(row: Row, protocol: Protocol) -> dict[str, Any]:
    form = next(filter(row.has, FORMS), "")
    if not form:
        rule = f"a transcript has its turns in {', '.join(FORMS)}"
        step = "name its column so; questions become traces with --found"
        row.fail("messages", rule, row.lacks(), step)
    if form == "response":
        question, parts = _response(row, protocol)
    else:
        question, parts = _messages(row, form)
    turns: list[str] = []
    results: list[list[dict[str, str]]] = []
    open_searches = 0
    for part in parts:
        if isinstance(part, str):
            fits = open_searches > 0
            open_searches -= 1
            _hold(row, form, fits, "a result follows its search", part)
            results.append(_documents(part))
            continue
        rule = "each search has its result, and nothing follows the answer"
        _hold(row, form, open_searches == 0, rule, turns[-1:])
        turn, queries = _turn(part, protocol)
        _hold(row, form, turn, f"a turn searches or answers, as {protocol.id} can write", part.text)
        turns.append(turn)
        open_searches = len(queries) or -1
    answered = bool(turns) and bool(protocol.final(SOLVER, turns[-1]))
    _hold(row, form, answered, "the last turn answers", turns[-1:])
    fields = {"question": asked(question) or question.rpartition(MARKER)[2].strip()}
    return {"role": SOLVER, "fields": fields, "turns": turns, "results": results}


def _hold(row: Row, form: str, fits: object, rule: str, shown: object) -> None:
    if not fits:
        row.fail(form, rule, show(shown), "mend the row, or take it out")


def _messages(row: Row, form: str) -> tuple[str, list[_Said | str]]:
    """The question and what follows it. Other users' turns are refused."""
    question = ""
    parts: list[_Said | str] = []
    listed = row.fields[form]
    entries = listed if isinstance(listed, list) else [listed]
    for entry in entries:
        fits = isinstance(entry, dict)
        _hold(row, form, fits, "a message is an object", entry)
        role = entry.get("role") or entry.get("from")
        content = entry.get("content", entry.get("value")) or ""
        role = WHO.get(str(role), role)
        _hold(row, form, isinstance(content, str), "a message is a text", content)
        if role == "user":
            _hold(row, form, not question, "a transcript has one question", content)
            question = content.strip()
        elif role == "assistant":
            thought = str(entry.get("reasoning_content") or "")
            queries = tuple(_query(call) for call in entry.get("tool_calls") or ())
            _hold(row, form, all(queries), "a tool is called with a query", entry)
            final = "" if queries else content.strip()
            parts.append(_Said(content, thought or (content if queries else ""), queries, final))
        elif role == "tool":
            parts.append(content)
        else:
            _hold(row, form, role in ("system", "developer"), "a message is of a known role", role)
    _hold(row, form, question, "a transcript begins with its question", row.fields[form])
    return question, parts


def _query(call: Any) -> str:
    """The query of a call; "" where it has none."""
    with suppress(ValueError, KeyError, TypeError):
        given = call["function"]["arguments"]
        return str((json.loads(given) if isinstance(given, str) else given)["query"])
    return ""


def _response(row: Row, protocol: Protocol) -> tuple[str, list[_Said | str]]:
    """Turns and, between tags of observations, what they found. The tags are Search-R1's or those
    of `protocol`: a result that stayed in a turn would be learned."""
    tags = "|".join(dict.fromkeys(["information", re.escape(protocol.observation_form.tag)]))
    response = row.text("response")
    parts = []
    end = 0
    for shown in re.finditer(rf"<({tags})>(.*?)</\1>", response, re.DOTALL):
        parts += [_Said(response[end : shown.start()].strip()), shown[2].strip()]
        end = shown.end()
    return row.text("question"), [*parts, _Said(response[end:].strip())]


def _turn(said: _Said, protocol: Protocol) -> tuple[str, tuple[str, ...]]:
    """A turn as `protocol` writes it, and its queries; "" where it neither searches nor answers."""
    given = protocol.action(SOLVER, said.text)
    if given.calls or given.final:
        return said.text, given.queries
    role, search = protocol.role(SOLVER), protocol.search
    inner = f"\\boxed{{{said.final}}}" if role.boxed else said.final
    body = f"<{role.final}> {inner} </{role.final}>"
    if said.queries:
        texts = [written(query, search.form) for query in said.queries]
        body = "".join(f"<{search.tag}> {text} </{search.tag}>" for text in texts)
    thought = f"<think>{said.thought.strip()}</think> " if said.thought.strip() else ""
    turn = thought + body
    action = protocol.action(SOLVER, turn)
    right = (said.queries or said.final) and action.queries == said.queries
    right = right and (action.final or "") == said.final
    return (turn if right else ""), said.queries


def _documents(shown: str) -> list[dict[str, str]]:
    """The documents in a result: Search-R1's `Doc 1(Title: ...)`, else one without a title."""
    documents = []
    shown = _WRAPPED.sub(r"\2", shown.strip())
    for number, (title, text) in enumerate(_SHOWN.findall(shown), 1):
        named = title.strip().strip('"')
        documents.append({"id": str(number), "contents": f'"{named}"\n{text}'})
    if not documents and shown.strip():
        documents.append({"id": "1", "contents": f"\n{shown.strip()}"})
    return documents
