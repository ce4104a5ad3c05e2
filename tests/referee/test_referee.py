"""The referee end to end on scripted verifiers: order, evidence, faults, limits, determinism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from proposals import GOOD, MINI, NOISE, POTA, VURE, Broken, Line, Words, behind, noise, on, proposal, referee

from ssp.base.episode import Document, Grade, Verdict
from ssp.base.errors import Fault, InputError, InvariantError
from ssp.config.schema import RefereeConfig
from ssp.engines import Generation, Sampling, ScriptedEngine
from ssp.game.judge import AnswerJudge, Item
from ssp.game.referee import CHECKS, RULES, Referee, guide
from tests.blocks import made

VALID = Verdict(valid=True, source="d1")
ASKED = ("vure", 0)


def rejected(rule: str) -> Verdict:
    return Verdict(valid=False, rule=rule)


def void(cause: str) -> Verdict:
    return Verdict(valid=False, void_cause=cause)


class Word:
    """A further judge that says what `says` holds for an answer."""

    def __init__(self, says: dict[str, Grade]) -> None:
        self._says, self.asked = says, []  # type: ignore[var-annotated]

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        self.asked += items
        return [self._says[item.answer or ""] for item in items]

    def check(self) -> None:
        raise AssertionError


def test_rules_come_first_and_only_survivors_are_verified() -> None:
    prompts: list[str] = []
    judge = referee(lambda prompt: GOOD, prompts)
    lost = proposal("lost")
    lost.void(Fault("retriever_down"))
    block = [proposal("a"), proposal("b", None), proposal("c", "vure seat ?"), lost, proposal("d")]
    verdicts = judge.check(block, [ASKED, ASKED, ASKED, ASKED, ("lemo", 0)], noise)
    wanted = [VALID, rejected("malformed"), rejected("leakage"), void("retriever_down"), rejected("not_answerable")]
    assert verdicts == wanted
    assert len(prompts) == 2


@pytest.mark.covers("SP-04")
def test_one_crafted_question_a_rule_is_rejected_with_its_reason() -> None:
    good, documents = "Which company was founded in the same year as the city of Vure?", [POTA, VURE]
    crafted: dict[str, dict[str, Any]] = {
        "malformed": {"final": None},
        "empty": {"final": " ?! "},
        "too_short": {"final": "Who is?"},
        "too_long": {"final": good + " and so on" * 100},
        "too_few_words": {"final": "Which company moved to Vure in 1900?"},
        "not_a_question": {"final": good[:-1]},
        "leakage": {"final": "Why is Pota, or another company, the one that was founded with Vure?"},
        "no_evidence": {"final": good, "hits": [0, 0]},
        "no_search": {"final": good, "hits": [2, 0]},
        "repeated_query": {"final": good, "queries": ["Vure city", "vure  city"]},
        "answer_in_query": {"final": good, "queries": ["vure", "pota company"]},
        "too_many_relations": {"final": good},
        "not_answerable": {"final": good},
        "unquoted_evidence": {"final": good},
        "unlinked_evidence": {"final": good},
        "too_few_facts": {"final": good},
    }
    rules = [id for id in RULES if id != "too_many_relations"]
    outputs = {
        "not_answerable": '<quote id="d1">pota seat vure</quote> <answer>vure</answer>',
        "unquoted_evidence": '<quote id="d1">pota seat vira</quote> <answer>pota</answer>',
        "unlinked_evidence": '<quote id="d2">vure a city</quote> <answer>pota</answer>',
        "too_few_facts": '<quote id="d1">pota seat vure</quote> <quote id="d1">pota seat vure .</quote> <answer>pota</answer>',
    }
    assert set(crafted) == {*RULES, *CHECKS}
    for id, changed in crafted.items():
        line = Line(lambda prompt, id=id: outputs.get(id, ""))
        asked = ["too_many_relations"] if id == "too_many_relations" else rules
        judge = behind(line, evidence="counted", rules=asked)
        changed = {"queries": ["vure", "city of vure"], "hits": [1, 1], "documents": documents, **changed}
        assert judge.check([proposal(**changed)], [("Pota", 2)], noise) == [rejected(id)], id


def test_calls_of_other_tools_are_no_searches() -> None:
    line = Line(lambda prompt: '<quote id="d1">pota seat vure</quote> <answer>Vure.</answer>')
    judge = behind(line, evidence="quoted", rules=["no_search"])
    for tools, verdict in ((["search", "search"], VALID), (["search", "lookup"], rejected("no_search"))):
        asked = proposal(queries=["vure", "pota"], hits=[1, 1], documents=[POTA, VURE])
        asked.tools = tools
        assert judge.check([asked], [ASKED], noise) == [verdict]


def test_a_prompt_in_natural_language_shows_the_ids_of_the_documents() -> None:
    line = Line(lambda prompt: '<quote id="d1">pota seat vure</quote> <answer>Vure.</answer>')
    judge = behind(line, evidence="quoted", prompt_tokens=924)
    assert judge.check([proposal("a")], [ASKED], noise) == [VALID]
    (prompt,) = line.prompts
    assert "[d1] Pota\npota a company" in prompt and "[d2] Vure\n" in prompt and "Question: pota seat ?" in prompt
    assert line.most == 77
    plain = Line(lambda prompt: "<answer>vure</answer>")
    assert behind(plain, evidence="none").check([proposal("a")], [ASKED], noise) == [Verdict(True)]
    assert "<quote" not in plain.prompts[0]


def test_a_quote_from_a_noise_document_is_no_evidence() -> None:
    judge = referee(lambda prompt: "<think> noise0 a person </think> <answer> vure </answer>")
    assert judge.check([proposal("a")], [ASKED], noise) == [rejected("unquoted_evidence")]


def test_an_engine_is_asked_greedily_for_so_many_tokens() -> None:
    seen: list[Sampling] = []

    class Watched(ScriptedEngine):
        def step(self, slots: list[int], pending: list[list[int]], sampling: Sampling) -> list[Generation]:
            seen.append(sampling)
            return super().step(slots, pending, sampling)

    on(Watched(lambda ids, seed, turn: []), made(RefereeConfig, prompt_tokens=108)).answers([("", [1])], [0])
    assert [(sampling.temperature, sampling.max_tokens) for sampling in seen] == [(0.0, 9)]


def test_a_longer_prompt_than_the_limit_loses_noise_and_a_longer_answer_is_cut() -> None:
    prompts: list[str] = []
    judge = referee(lambda prompt: GOOD, prompts, prompt_tokens=26)
    assert judge.check([proposal("a")], [ASKED], noise) == [rejected("not_answerable")]
    assert len(prompts[0].split()) <= 26 and POTA.text in prompts[0] and "noise" not in prompts[0]
    whole: list[str] = []
    referee(lambda prompt: GOOD, whole).check([proposal("a")], [ASKED], noise)
    referee(lambda prompt: GOOD, whole, prompt_tokens=len(whole[0].split())).check([proposal("a")], [ASKED], noise)
    assert whole[0] == whole[1] and "noise" in whole[0], "a prompt of just the limit is shown"


def test_whole_materials_of_other_proposals_are_noise() -> None:
    prompts: list[str] = []
    judge = referee(lambda prompt: GOOD, prompts, evidence="none", noise=1)
    block = [proposal("a"), proposal("b", documents=(NOISE[0], NOISE[1]))]
    judge.check(block, [ASKED] * 2, lambda episode: [])
    first = [sentence for sentence in prompts[0].split(" . ") if "noise" in sentence]
    assert len(first) == 2 and POTA.text in prompts[0] and POTA.text in prompts[1]


@pytest.mark.covers("SP-04")
def test_what_cannot_be_read_is_rejected_and_what_failed_is_void() -> None:
    """D25: a check that could not run never passes; a service's fault is void, by the law, not a rejection."""
    replies: dict[str, str | Fault] = {
        "pota seat ?": '<quote id="d1">pota seat vure</quote> <answer>vure</answer>',
        "pota founder ?": "I cannot say. The answer is vure",
        "pota owner ?": "<answer>vure",
        "pota mayor ?": Fault("judge_down"),
        "pota nation ?": "",
    }
    line = Line(lambda prompt: replies[prompt.split("Question: ")[1].split("\n")[0]])
    judge = behind(line, evidence="quoted")
    block = [proposal(f"{i}", question) for i, question in enumerate(replies)]
    unread = rejected("not_answerable")
    assert judge.check(block, [ASKED] * 5, noise) == [VALID, unread, unread, void("judge_down"), void("judge_format")]


def test_the_judges_word_counts_where_the_answer_is_not_the_target_itself() -> None:
    says = {"town of vure": Grade(True, by="llm"), "lemo": Grade(False), "vuur": Grade(None, void_cause="judge_down")}
    word = Word(says)
    answers = {"a": "vure", "b": "town of vure", "c": "lemo", "d": "vuur"}
    line = Line(lambda prompt: f"<answer>{answers[prompt.split('Question: ')[1][0]]}</answer>")
    judge = behind(line, evidence="none")
    judge._judge = AnswerJudge(word)
    block = [proposal(name, f"{name} seat ?") for name in answers]
    right = Verdict(True)
    wanted = [right, right, rejected("not_answerable"), void("judge_down")]
    assert judge.check(block, [ASKED] * 4, noise) == wanted
    assert [item.answer for item in word.asked] == ["town of vure", "lemo", "vuur"]


def test_an_engine_fault_is_void_and_a_bug_goes_up() -> None:
    judge = Referee(RefereeConfig(), MINI, on(Broken(Fault("engine_died"))), AnswerJudge())
    verdicts = judge.check([proposal("a"), proposal("b", None)], [ASKED] * 2, noise)
    assert verdicts == [void("engine_died"), rejected("malformed")]
    with pytest.raises(ZeroDivisionError):
        Referee(RefereeConfig(), MINI, on(Broken(ZeroDivisionError())), AnswerJudge()).check(
            [proposal("a")], [ASKED], noise
        )


def test_checks_that_cannot_run_are_refused_when_built() -> None:
    with pytest.raises(InvariantError, match="chain"):
        Referee(RefereeConfig(verifier="none"), MINI, None, AnswerJudge())
    with pytest.raises(InvariantError, match="frozen"):
        Referee(RefereeConfig(verifier="frozen"), MINI, None, AnswerJudge())
    with pytest.raises(InvariantError, match="none"):
        engine = on(ScriptedEngine(lambda ids, seed, turn: []))
        Referee(RefereeConfig(verifier="none", evidence="none"), MINI, engine, AnswerJudge())


@pytest.mark.covers("SP-04")
@pytest.mark.parametrize("evidence", ["chain", "none"])
def test_material_depends_on_the_episodes_seed_only(evidence: str) -> None:
    def prompts_of(names: list[str]) -> dict[str, str]:
        seen: list[str] = []
        block = [proposal(name, documents=(POTA, Document(name, f'"{name}"\n{name} a city .'))) for name in names]
        referee(lambda prompt: GOOD, seen, evidence=evidence, noise=2).check(block, [ASKED] * len(block), noise)
        return dict(zip(names, seen, strict=True))

    one, two = prompts_of(["a", "b", "c", "d"]), prompts_of(["d", "b", "c", "a"])
    assert one == two
    assert len(set(one.values())) > 1


def guided(guide: Any, answer: Any = lambda prompt: GOOD, **settings: Any) -> list[Verdict]:
    """The verdicts on a good question, one that breaks a rule, and another good one."""
    made = referee(answer, **settings)
    made._guide = guide
    return made.check([proposal("a"), proposal("b", None), proposal("c")], [ASKED] * 3, noise)


@pytest.mark.covers("U17")
def test_a_guide_scores_what_is_valid_and_its_faults_are_voids() -> None:
    seen: list[tuple[list[str], list[str]]] = []

    def rate(episodes: Sequence[Any], targets: Sequence[str]) -> list[float | Fault]:
        seen.append(([episode.id for episode in episodes], list(targets)))
        return [0.25, Fault("judge_down")]

    assert guided(rate) == [Verdict(True, guide=0.25, source="d1"), rejected("malformed"), void("judge_down")]
    assert seen == [(["a", "c"], ["vure", "vure"])]
    assert guided(rate, lambda prompt: "") == [
        rejected("not_answerable"),
        rejected("malformed"),
        rejected("not_answerable"),
    ]
    assert len(seen) == 1


def test_the_verifier_as_guide_gives_the_likelihood_of_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """The geometric mean of its tokens' probabilities, of each answer its own."""
    said, drawn = ScriptedEngine._say, iter((-0.1, -0.4))

    def unsure(self: ScriptedEngine, *given: Any) -> Generation:
        found, logprob = said(self, *given), next(drawn)
        return replace(found, logprobs=[0.0, *[logprob] * (len(found.ids) - 1)])

    monkeypatch.setattr(ScriptedEngine, "_say", unsure)
    first, second, third = guided("verifier")
    words = len(GOOD.split())
    assert second == rejected("malformed") and first.valid and third.valid
    assert [first.guide, third.guide] == pytest.approx([math.exp(each * (words - 1) / words) for each in (-0.1, -0.4)])


def test_a_user_s_guide_takes_what_it_names(tmp_path: Any) -> None:
    (tmp_path / "guide.py").write_text(
        "def related(question, target, documents):\n    return sum(target in text for text in documents) / len(documents)\n"
        "def odd(question):\n    return 1.5\n"
        "def none(question):\n    return 0.0\n"
        "def whole(question):\n    return 1.0\n"
    )
    found = guided(guide.own(f"{tmp_path / 'guide.py'}:related"))
    assert found[0] == Verdict(True, guide=sum("vure" in d.contents for d in (POTA, VURE)) / 2, source="d1")
    for name, score in (("none", 0.0), ("whole", 1.0)):
        assert guided(guide.own(f"{tmp_path / 'guide.py'}:{name}"))[0] == Verdict(True, guide=score, source="d1")
    with pytest.raises(InputError, match="from 0 to 1"):
        guided(guide.own(f"{tmp_path / 'guide.py'}:odd"))


def test_the_judge_as_guide_reads_a_score_and_nothing_else() -> None:
    said = iter(['{"rationale": "odd", "score": 0.5}', "fine"])
    line = Line(lambda prompt: next(said))
    assert guided(guide.judged(line)) == [
        Verdict(True, guide=0.5, source="d1"),
        rejected("malformed"),
        void("judge_format"),
    ]  # type: ignore[arg-type]
    assert len(line.prompts) == 2 and '"target": "vure"' in line.prompts[0]


@pytest.mark.parametrize(
    ("evidence", "searches", "wanted"),
    [
        ("counted", 1, VALID),
        ("counted", 2, VALID),
        ("counted", 3, rejected("too_few_facts")),
        ("counted", 0, VALID),  # the row did not say
        ("quoted", 3, VALID),
    ],
)
def test_the_facts_that_were_quoted_are_counted_where_it_is_asked_for(
    evidence: str, searches: int, wanted: Verdict
) -> None:
    said = '<quote id="d1">pota seat vure</quote> <quote id="d2">vure nation lemo</quote> <answer>lemo</answer>'
    judge = behind(Line(lambda prompt: said), evidence=evidence)
    assert judge.check([proposal("a")], [("lemo", searches)], noise) == [wanted]


@pytest.mark.parametrize(
    ("needed", "replies", "verdict"),
    [
        (1, ["lemo", "vure", "lemo"], Verdict(True)),
        (2, ["lemo", "vure", "lemo"], rejected("not_answerable")),
        (2, ["vure", "vure", "lemo"], Verdict(True)),
        (2, ["vure", Fault("judge_down"), "lemo"], void("judge_down")),
        (1, ["vure", Fault("judge_down"), "lemo"], Verdict(True)),
        (3, ["vure", Fault("judge_down"), "lemo"], rejected("not_answerable")),
    ],
)
@pytest.mark.covers("GA-08")
def test_a_question_is_valid_where_enough_of_several_answers_prove_it(
    needed: int, replies: list[str | Fault], verdict: Verdict
) -> None:
    """A void is one only where the answers that are missing could have made enough."""
    said = iter(replies)

    def reply(prompt: str) -> str | Fault:
        one = next(said)
        return one if isinstance(one, Fault) else f"<answer>{one}</answer>"

    judge = behind(Line(reply), evidence="none", samples=3, needed=needed)
    assert judge.check([proposal("a")], [ASKED], noise) == [verdict]


def test_several_answers_are_drawn_and_the_first_is_the_greedy_one_s_draw() -> None:
    seeds: list[int] = []
    temperatures: list[float] = []

    class Watched(ScriptedEngine):
        def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
            temperatures.append(samplings.temperature)
            return super().step(slots, pending, samplings)

        def open(self, drawn: list[int]) -> list[int]:
            seeds.extend(drawn)
            return super().open(drawn)

    for samples in (1, 3):
        words, cfg = Words(), RefereeConfig(samples=samples)
        engine = Watched(lambda ids, seed, turn, words=words: words.encode(GOOD))  # type: ignore[misc]
        judge = Referee(cfg, MINI, on(engine, cfg, words), AnswerJudge(), seed=3)
        assert judge.check([proposal("a")], [ASKED], noise) == [VALID]
    assert temperatures == [0.0, 1.0] and seeds[0] == seeds[1] and len(set(seeds[1:])) == 3


@pytest.mark.parametrize(
    ("recalled", "verdict"),
    [
        ("vure", rejected("closed_book")),
        ("lemo", Verdict(True)),
        (Fault("judge_down"), void("judge_down")),
    ],
)
@pytest.mark.covers("GA-04", "GA-08")
def test_a_question_that_is_answered_without_a_document_is_refused_where_that_is_asked_for(
    recalled: str | Fault, verdict: Verdict
) -> None:
    def reply(prompt: str) -> str | Fault:
        if "vure a city" in prompt:
            return "<answer>vure</answer>"
        return recalled if isinstance(recalled, Fault) else f"<answer>{recalled}</answer>"

    asked = [proposal("a"), proposal("b", None)]
    judge = behind(Line(reply), evidence="none", closed_book=True, noise=0)
    assert judge.check(asked, [ASKED, ASKED], noise) == [verdict, rejected("malformed")]
    line = Line(reply)
    assert behind(line, evidence="none", noise=0).check(asked[:1], [ASKED], noise) == [Verdict(True)]
    assert len(line.prompts) == 1
