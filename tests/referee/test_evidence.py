"""Each kind of evidence on its own: what stands in the documents, what leads to the target."""

from __future__ import annotations

import pytest
from proposals import MINI, POTA, VURE, proposal

from ssp.base.episode import Document
from ssp.game.referee.evidence import EVIDENCE
from tests.choices import choices

FOUNDED = Document("d1", '"Pota"\npota a company . pota seat vure . pota founder bino .')
TUPOLEV = Document(
    "17", '"Tu-144"\nThe Tu‑144 first flew on 31 December 1968, near Moscow; its designer was Alexei Tupolev.'
)
TOKYO = Document("jp/1", '"東京タワー"\n東京タワーは、1958年に完成した電波塔である。')
NATURAL = (TUPOLEV, TOKYO)


def passes(kind: str, output: str, question: str = "pota seat ?", target: str = "vure") -> tuple[bool, bool]:
    """(stands, leads) in the generated world."""
    asked, evidence = proposal(final=question, documents=(FOUNDED, VURE)), EVIDENCE[kind]
    return evidence.stands(asked, target, MINI, output), evidence.leads(asked, target, MINI, output)


@pytest.mark.parametrize(
    ("quotes", "stand"),
    [
        ("<think> pota seat vure </think>", True),
        ("<think> pota seat vure </think> <think> vure nation lemo </think>", True),
        ("", False),
        ("<think> </think>", False),
        ("<think> pota seat lemo </think>", False),
        ("<think> pota seat vure </think> <think> vure nation pota </think>", False),
        ("<think> seat vure </think>", False),
        ("<think> company . pota seat vure </think>", False),
        ("<think> pota seat vure", False),
        ("<think> Pota seat vure </think>", False),
    ],
)
def test_verbatim_quotes_are_whole_sentences_of_the_own_documents(quotes: str, stand: bool) -> None:
    assert passes("verbatim", f"{quotes} <answer> vure </answer>") == (stand, True)


@pytest.mark.parametrize(
    ("question", "quotes", "leads"),
    [
        ("pota seat ?", "<think> pota seat vure </think>", True),
        ("bino seat nation ?", "<think> bino seat pota </think> <think> pota nation vure </think>", True),
        ("bino seat mayor ?", "<think> bino seat pota </think> <think> pota nation vure </think>", False),
        ("bino seat nation ?", "<think> pota nation vure </think>", False),
        ("bino seat nation ?", "<think> pota nation vure </think> <think> bino seat pota </think>", False),
        ("pota seat nation ?", "<think> pota seat vure </think>", False),
        ("pota seat ?", "<think> pota seat vure </think> <think> vure nation vure </think>", False),
        ("pota seat ?", "<think> pota seat lemo </think>", False),
        ("pota seat ?", "<think> </think>", False),
    ],
)
def test_a_chain_leads_from_the_question_to_the_target(question: str, quotes: str, leads: bool) -> None:
    assert passes("chain", f"{quotes} <answer> vure </answer>", question)[1] is leads


def test_a_sentence_does_not_run_over_two_documents() -> None:
    torn = proposal(documents=(Document("a", '"A"\npota seat'), Document("b", '"B"\nvure . x y z')))
    output = "<think> pota seat vure </think> <answer> vure </answer>"
    assert not EVIDENCE["verbatim"].stands(torn, "vure", MINI, output)


@pytest.mark.parametrize(
    ("output", "stand"),
    [
        ('<quote id="17">first flew on 31 December 1968</quote>', True),
        ("<quote id='17'>\n First  flew on\n31 December 1968.</quote>", True),
        ('<quote id = "17" >“first flew on 31 December 1968” ...</quote>', True),
        ('<quote id="17">the tu‑144 FIRST flew</quote> <quote id="jp/1">1958年に完成</quote>', True),
        ('<quote id="17">Alexei Tupolev</quote>', True),  # short, but the answer
        ('<quote id="17">Tu‑144</quote>', False),
        ('<quote id="17">first flew</quote>', False),
        ('<quote id="jp/1">first flew on 31 December 1968</quote>', True),  # words count, ids do not
        ('<quote id="18">first flew on 31 December 1968</quote>', True),
        ("<quote>first flew on 31 December 1968</quote>", False),
        ('<quote id="17">first flew on 30 December 1968</quote>', False),
        ('<quote id="17">near Moscow its designer was</quote>', False),  # a mark left out joins two statements
        ('<quote id="17">Tu-144 The Tu-144 first flew</quote>', False),  # title and text are two things
        ('<quote id="17">first flew on 31 December 1968</quote> <quote id="17">near Paris its</quote>', False),
        ('<quote id="17">first flew on 31 December 1968</quote> <quote id="17">never closed', False),
        ('<quote id="17"><quote id="17">first flew on 31 December 1968</quote></quote>', False),
        ('<quote id="17"></quote>', False),
        ('<quote id="17">...</quote>', False),
        ("", False),
    ],
)
def test_quoted_spans_stand_in_a_document(output: str, stand: bool) -> None:
    asked = proposal(documents=NATURAL)
    assert EVIDENCE["quoted"].stands(asked, "Alexei Tupolev", MINI, output) is stand


def test_one_quoted_span_names_the_target() -> None:
    def leads(output: str, target: str) -> bool:
        return EVIDENCE["quoted"].leads(proposal(documents=NATURAL), target, MINI, output)

    first, second = '<quote id="17">first flew near Moscow</quote>', '<quote id="jp/1">1958年に完成</quote>'
    assert leads(first + second, "Moscow") and leads(first + second, "1958年")
    assert not leads(first + second, "Mosco") and not leads("Moscow <answer>Moscow</answer>", "Moscow")


def test_nothing_is_asked_for_without_evidence_and_every_kind_has_a_test() -> None:
    assert passes("none", "") == (True, True)
    assert set(EVIDENCE) == set(choices("referee.evidence"))
    assert not any(
        EVIDENCE[kind].stands(proposal(documents=(POTA,)), "vure", MINI, "") for kind in EVIDENCE.keys() - {"none"}
    )
