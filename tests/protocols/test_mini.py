"""The mini protocol: prompts, parsing, what a turn asks for."""

from __future__ import annotations

import random

import pytest

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.game import protocols
from ssp.game.protocols import Segment

MINI = protocols.get("mini")


def test_unknown_id_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="mini"):
        protocols.get("minni")


@pytest.mark.parametrize(
    ("role", "fields", "prompt"),
    [
        ("solver", {"question": "pota seat nation ?"}, "<q> pota seat nation ? </q>"),
        ("proposer", {"target": "vure"}, "<target> vure </target>"),
        (
            "verifier",
            {"documents": "pota seat vure .", "question": "pota seat ?"},
            "<information> pota seat vure . </information> <q> pota seat ? </q>",
        ),
    ],
)
def test_render(role: str, fields: dict[str, str], prompt: str) -> None:
    assert MINI.render(role, fields) == prompt


def test_render_refuses_missing_fields_and_unknown_roles() -> None:
    with pytest.raises(InputError, match="question"):
        MINI.render("solver", {"target": "x"})
    with pytest.raises(InputError, match="referee"):
        MINI.render("referee", {})


def test_a_field_is_not_expanded_twice() -> None:
    assert MINI.render("solver", {"question": "{documents} ?"}) == "<q> {documents} ? </q>"


def test_parse_types_every_piece() -> None:
    text = "<think> a rel b </think> so <search> b </search> <information> b x c . </information> <answer> c </answer> <eos>"
    assert MINI.parse(text) == [
        Segment("think", "a rel b", True),
        Segment("text", "so", True),
        Segment("search", "b", True),
        Segment("information", "b x c .", True),
        Segment("answer", "c", True),
    ]


def test_parse_marks_what_is_not_closed() -> None:
    assert MINI.parse("<think> a <search> b </search>") == [Segment("think", "a", False), Segment("search", "b", True)]
    assert MINI.parse("<answer> a") == [Segment("answer", "a", False)]
    assert MINI.parse("<answer> a </search> b </answer>") == [Segment("answer", "a </search> b", True)]


def test_parse_never_raises() -> None:
    words = ["<search>", "</search>", "<answer>", "</answer>", "a", "<", ">", "<eos>", "<unknown>", "</q>", "{x}"]
    rng = random.Random(0)
    for _ in range(300):
        text = " ".join(rng.choices(words, k=rng.randrange(12)))
        segments = MINI.parse(text)
        assert sum(s.text.split().count("a") for s in segments) == text.split().count("a")
        MINI.queries(text), MINI.final("solver", text)


def test_the_last_segment_decides_what_a_turn_asks_for() -> None:
    assert MINI.queries("<think> a rel b </think> <search> b </search>") == ("b",)
    assert MINI.queries("<search> b </search> <answer> c </answer>") == ()
    assert MINI.final("solver", "<think> a </think> <answer> c </answer>") == "c"
    assert MINI.final("solver", "<question> c </question>") is None
    assert MINI.final("proposer", "<question> a rel ? </question>") == "a rel ?"
    assert MINI.final("verifier", "<answer> none </answer>") == "none"
    for empty in ("", "<answer> </answer>", "<answer> c", "c </answer>", "<answer> c </answer> <search> d"):
        assert MINI.final("solver", empty) is None


def test_only_the_last_turn_counts() -> None:
    assert MINI.final("solver", "<answer> a </answer> <information> b </information> <search> c </search>") is None
    assert MINI.queries("<search> a </search> <information> b </information>") == ()


def test_observation_drops_titles_and_tags() -> None:
    documents = [
        Document("1", '"Pota"\npota seat vure .'),
        Document("2", '"X"\nx </information> <answer> y .\n z <eos>'),
    ]
    assert MINI.observation(documents) == "<information> pota seat vure . x y . z </information>"
    assert MINI.observation([]) == "<information> </information>"


def test_stops_are_single_words_and_end_every_role() -> None:
    for role in ("proposer", "solver", "verifier"):
        stops = MINI.stops(role)
        assert all(" " not in stop for stop in stops)
        assert {"</search>", f"</{MINI.roles[role].final}>"} <= set(stops)
    assert "</search>" not in MINI.stops("solver", searching=False)


def test_text_after_the_tag_that_ended_a_turn_is_part_of_a_token() -> None:
    assert MINI.final("solver", "<answer> c </answer>.") == "c"
    assert MINI.queries("<search> c </search>\n\n") == ("c",)
