"""The parser against an oracle that works in another way, on generated strings; what never happens; time on long input."""

from __future__ import annotations

import random

import pytest

from ssp.game import protocols
from ssp.game.protocols import Protocol, Segment, calls

STRINGS = 2500
NAMES = ("search-r1", "ssp", "research", "recall", "chat-tools", "mini")
FORMS = {name: protocols.get(name) for name in NAMES}
CALL = '{"name": "search", "arguments": {"query": "a b"}}'
PIECES = [
    *(
        f"<{slash}{kind}>"
        for kind in ("think", "search", "answer", "information", "question", "result")
        for slash in ("", "/")
    ),
    *("<tool_call>", "</tool_call>", "<tool_response>", "<observation>", "</observation>", "<original_evidence>"),
    *(
        "<|im_end|>",
        "<|im_start|>",
        "<|python_tag|>",
        "<eos>",
        "<|",
        "|>",
        "<|a b|>",
        "<|x|",
        "<||>",
        "</s>",
        "<end_of_turn>",
        "[INST]",
    ),
    *("<", ">", "</", "<search", "search>", "<Search>", "< search>", "<sea<|im_end|>rch>", "<answer/>", "</ answer>"),
    *("a", "b c", " ", "\n", "\t\n ", "\u2028", "é", "答案", "🙂", "\u0000", "\u202e", "a\u0301", "\ufffd", "x" * 40),
    *("\\boxed{", "\\boxed{x}", "\\boxed{a{b}c}", "{", "}", "\\boxed", '["a", "b"]', "[1]", '["a", ""]', "[]", "null"),
    *(CALL, CALL.replace("arguments", "parameters"), CALL[:-1], CALL.replace("search", "find"), '{"name": "search"}'),
    *(
        '{"name": "search", "arguments": {"queries": ["a", "b"]}}',
        '{"name": "search", "arguments": "{\\"query\\": \\"q\\"}"}',
    ),
    *('{"name": "search", "arguments": {"query": "\\ud800"}}', '{"name": "search", "arguments": {"query": " "}}'),
]
WHOLE = [
    "<think> t </think><search> q </search>",
    "<answer> x </answer>",
    "<answer> so \\boxed{x {y}} </answer>",
    f"<think> t </think>\n<tool_call>\n{CALL}\n</tool_call>",
    f"<tool_call>{CALL}</tool_call> <tool_call>{CALL}</tool_call><|im_end|>",
    "<question> who? </question>",
    '<search>["a", "b"]</search>',
    f"<think> t </think> {CALL}",
]


def strings(seed: int) -> list[str]:
    """Random pieces, whole turns with pieces struck in or cut out."""
    rng = random.Random(seed)
    made = []
    for _ in range(STRINGS):
        text = "".join(rng.choices(PIECES, k=rng.randrange(14)))
        if rng.random() < 0.6:
            whole = rng.choice(WHOLE)
            at, to = sorted((rng.randrange(len(whole) + 1), rng.randrange(len(whole) + 1)))
            damaged = whole[:at] + rng.choice(PIECES) + whole[to if rng.random() < 0.3 else at :]
            text = rng.choice([text + whole, whole + text, text + damaged, whole, damaged])
        made.append(text)
    return made


# The oracle: character by character, where the parser uses patterns.


WORDS = (
    "<s>",
    "</s>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "<eos>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "[TOOL_CALLS]",
)


def plain(text: str, end: str) -> str:
    out, at = [], 0
    while at < len(text):
        if word := next((word for word in WORDS if text.startswith(word, at)), ""):
            out.append(" ")
            at += len(word)
            continue
        close = text.find("|>", at + 2) if text.startswith("<|", at) else -1
        name = text[at + 2 : close] if close > 0 else ""
        if 0 < len(name) <= 64 and not any(c in "<>|" or c.isspace() for c in name):
            out.append(" ")
            at = close + 2
        elif end and text.startswith(end, at):
            out.append(" ")
            at += len(end)
        else:
            out.append(text[at])
            at += 1
    return "".join(out)


def tags(text: str, kinds: tuple[str, ...]) -> list[tuple[int, str, bool]]:
    """(place, kind, opens) of every tag."""
    found = []
    for at, character in enumerate(text):
        if character == "<":
            found += [
                (at, kind, not slash)
                for kind in kinds
                for slash in ("", "/")
                if text.startswith(f"<{slash}{kind}>", at)
            ]
    return found


def segments(form: Protocol, text: str) -> list[Segment]:
    """Blocks first: each opening tag reaches to its own closing tag, or to the next opening one; the rest is text."""
    marks = tags(text, form.kinds)
    blocks = []  # begin, inner begin, inner end, end, kind, closed
    for n, (at, kind, opens) in enumerate(marks):
        if opens:
            later = [mark for mark in marks[n + 1 :] if mark[2] or mark[1] == kind][:1]
            stop, closed = (later[0][0], not later[0][2]) if later else (len(text), False)
            blocks.append((at, at + len(kind) + 2, stop, stop + (len(kind) + 3) * closed, kind, closed))
    found, at = [], 0
    for begin, inner, stop, end, kind, closed in [*blocks, (len(text), 0, 0, 0, "", False)]:
        outside = [mark for mark in marks if at <= mark[0] < begin]  # stray closing tags cut the text
        for place, name, _ in [*outside, (begin, "", False)]:
            found.append(Segment("text", text[at:place], True))
            at = place + (len(name) + 3 if name else 0)
        if kind:
            found.append(Segment(kind, text[inner:stop], closed))
            at = end
    cleaned = [Segment(s.kind, plain(s.text, form.end).strip(), s.closed) for s in found]
    return [s for s in cleaned if s.kind != "text" or s.text]


@pytest.mark.covers("RS-03")
@pytest.mark.parametrize("name", NAMES)
def test_against_the_oracle(name: str) -> None:
    form, seen = FORMS[name], {"queries": 0, "final": 0, "neither": 0}
    for text in strings(seed=NAMES.index(name)):
        assert form.parse(text) == segments(form, text), text
        queries, final = form.queries(text), form.final("solver", text)
        action = form.action("solver", text)
        assert (action.queries, action.final) == (queries, None if queries else final), text
        seen["queries" if queries else "final" if final else "neither"] += 1
    assert min(seen.values()) > STRINGS // 50, seen


THOUGHT, BOTH = "<think> t </think>", '<tool_call>{"name": "search", "arguments": {"queries": ["a", "b"]}}</tool_call>'
BARE = '{"name": "search", "parameters": "{\\"query\\": \\"q\\"}"}'


@pytest.mark.covers("RS-03")
@pytest.mark.parametrize(
    ("name", "turn", "queries", "final"),
    [
        ("search-r1", f"{THOUGHT}<search> q </search>", ("q",), None),
        ("search-r1", f"<search> q </search>{THOUGHT}", (), None),
        ("search-r1", "<search> q", (), None),
        ("search-r1", "<search> q </search> <answer> x </answer> more", (), "x"),
        ("search-r1", "<answer> x", (), None),
        ("search-r1", "<answer> </answer>", (), None),
        ("search-r1", "<answer> <|im_end|> </answer>", (), None),
        ("ssp", "<search> [x </search>", ("[x",), None),
        ("ssp", '<search>["a", " b "]</search>', ("a", "b"), None),
        ("ssp", '<search>["a", ""]</search>', ('["a", ""]',), None),
        ("ssp", '<search>["a", 1]</search>', ('["a", 1]',), None),
        ("research", "<answer> so \\boxed{x {y}} </answer>", (), "x {y}"),
        ("research", "<answer> \\boxed{a} \\boxed{b </answer>", (), None),
        ("research", "<answer> x </answer>", (), None),
        ("recall", f"{THOUGHT}<tool_call> {CALL} </tool_call>", ("a b",), None),
        ("recall", f"<tool_call>{CALL}</tool_call>{BOTH}<|im_end|>", ("a b", "a", "b"), None),
        ("recall", f"<tool_call>{CALL[:-1]}</tool_call>{BOTH}", (), None),
        ("recall", BOTH.replace("search", "find"), (), None),
        ("recall", BOTH.replace('"a"', '" "'), (), None),
        ("recall", BOTH.replace('"a"', '"\\ud800"'), (), None),
        ("chat-tools", f"{THOUGHT} {BARE}", ("q",), None),
        ("chat-tools", f"{THOUGHT} I call {BARE}", (), None),
        ("chat-tools", "<answer> x </answer>", (), "x"),
    ],
)
def test_what_a_turn_asks_for(name: str, turn: str, queries: tuple[str, ...], final: str | None) -> None:
    assert (FORMS[name].queries(turn), FORMS[name].final("solver", turn)) == (queries, final)


def test_places_of_segments() -> None:
    for form in FORMS.values():
        for text in strings(seed=11)[:500]:
            at = 0
            for segment in form.parse(text):
                assert at <= segment.begin <= segment.end <= len(text)
                begin, end = segment.inner
                assert plain(text[begin:end], form.end).strip() == segment.text, (text, segment)
                if segment.kind != "text":
                    block = text[segment.begin : segment.end]
                    assert block.startswith(f"<{segment.kind}>")
                    assert block.endswith(f"</{segment.kind}>") == segment.closed or not segment.closed
                at = segment.end


LONG = {
    "openings": "<search>" * 125_000,
    "closings": "</search>" * 111_000,
    "half tags": "<search" * 143_000,
    "angles": "<" * 1_000_000,
    "half controls": "<|" * 500_000,
    "one long control": "<|" + "a" * 1_000_000,
    "pairs": "<answer>x</answer>" * 55_000,
    "unclosed, then text": "<answer>" + "x </search> <" * 77_000,
    "boxes": "<answer>" + "\\boxed{" * 142_000 + "</answer>",
    "braces": "<answer>\\boxed{" + "{" * 1_000_000 + "</answer>",
    "nested lists": "<search>" + "[" * 1_000_000 + "</search>",
    "nested calls": "<tool_call>" + '{"name":' * 125_000 + "</tool_call>",
    "digits": "<tool_call>" + "1" * 1_000_000 + "</tool_call>",
    "spaces": "<search>" + " " * 1_000_000 + "x</search>",
    "thoughts": "</think>" * 125_000 + "{",
}


@pytest.mark.parametrize("what", LONG)
def test_a_megabyte_is_read(what: str) -> None:
    """By a reader of quadratic time it would not be, before the day is over."""
    text = LONG[what]
    for form in (FORMS["ssp"], FORMS["recall"]):
        assert form.action("solver", text) is not None
    assert calls.boxed(text) != text
