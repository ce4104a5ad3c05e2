"""The referee end to end on a scripted verifier: order, evidence, faults, limits, determinism."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ssp import protocols
from ssp.config.schema import RefereeConfig
from ssp.engines import Generation, Sampling, ScriptedEngine
from ssp.episode import Document, Episode
from ssp.errors import Fault, InputError, InvariantError
from ssp.referee import Referee
from ssp.referee.evidence import own_documents, pick_noise, prompt_ids

MINI = protocols.get("mini")
POTA = Document("d1", '"Pota"\npota a company . pota seat vure .')
VURE = Document("d2", '"Vure"\nvure a city . vure nation lemo .')
NOISE = [Document(f"n{i}", f'"N{i}"\nnoise{i} a person .') for i in range(5)]
GOOD = "<think> pota seat vure </think> <answer> vure </answer>"


class Words:
    """A tokenizer that learns one id a word, in the order seen."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return [self.vocabulary.setdefault(word, len(self.vocabulary)) for word in text.split()]

    def decode(self, ids: list[int], clean_up_tokenization_spaces: bool = True) -> str:
        words = {id: word for word, id in self.vocabulary.items()}
        return " ".join(words[id] for id in ids)


class Broken(ScriptedEngine):
    """Raises on every step; counts open slots."""

    def __init__(self, error: Exception) -> None:
        super().__init__(lambda ids, seed, turn: [])
        self._error = error

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        raise self._error


def proposal(name: str, final: str | None = "pota seat ?", documents: tuple[Document, ...] = (POTA, VURE)) -> Episode:
    return Episode(
        name, name, "proposer", 0, seed=ord(name[0]), final=final, queries=["pota"], documents=list(documents)
    )


def referee(answer: Callable[[str], str], prompts: list[str] | None = None, **options: int) -> Referee:
    """A referee whose verifier answers `answer(prompt)`; the prompts are kept in `prompts`."""
    words = Words()

    def script(ids: list[int], seed: int, turn: int) -> list[int]:
        prompt = words.decode(ids)
        if prompts is not None:
            prompts.append(prompt)
        return words.encode(answer(prompt), add_special_tokens=False)

    return Referee(RefereeConfig(), MINI, words, ScriptedEngine(script), seed=3, **options)


def noise(episode: Episode) -> list[Document]:
    return NOISE


def test_rules_come_first_and_only_survivors_are_verified() -> None:
    prompts: list[str] = []
    judge = referee(lambda prompt: GOOD, prompts)
    lost = proposal("lost")
    lost.void("retriever_down")
    block = [proposal("a"), proposal("b", None), proposal("c", "vure seat ?"), lost, proposal("d")]
    verdicts = judge.check(block, ["vure", "vure", "vure", "vure", "lemo"], noise)
    assert [(v.valid, v.rule, v.void_cause) for v in verdicts] == [
        (True, "", ""),
        (False, "malformed", ""),
        (False, "leakage", ""),
        (False, "", "retriever_down"),
        (False, "not_answerable", ""),
    ]
    assert len(prompts) == 2
    assert judge.counts == {"valid": 1, "malformed": 1, "leakage": 1, "void/retriever_down": 1, "not_answerable": 1}


def test_the_prompt_holds_own_documents_noise_and_question() -> None:
    prompts: list[str] = []
    referee(lambda prompt: GOOD, prompts).check([proposal("a")], ["vure"], noise)
    (prompt,) = prompts
    assert prompt.startswith("<information> ") and prompt.endswith("</information> <q> pota seat ? </q>")
    assert POTA.text in prompt and VURE.text in prompt
    assert sum(document.text in prompt for document in NOISE) == RefereeConfig().noise_documents


def test_a_quote_from_a_noise_document_is_no_evidence() -> None:
    judge = referee(lambda prompt: "<think> noise0 a person </think> <answer> vure </answer>")
    assert judge.check([proposal("a")], ["vure"], noise)[0].rule == "unquoted_evidence"


def test_a_question_without_documents_is_not_answerable() -> None:
    prompts: list[str] = []
    judge = referee(lambda prompt: GOOD, prompts)
    assert judge.check([proposal("a", documents=())], ["vure"], noise)[0].rule == "not_answerable"
    assert prompts == []


def test_an_engine_fault_is_void_and_a_bug_goes_up() -> None:
    engine = Broken(Fault("engine_died"))
    judge = Referee(RefereeConfig(), MINI, Words(), engine)
    verdicts = judge.check([proposal("a"), proposal("b", None)], ["vure", "vure"], noise)
    assert [(v.valid, v.rule, v.void_cause) for v in verdicts] == [(False, "", "engine_died"), (False, "malformed", "")]
    with pytest.raises(ZeroDivisionError):
        Referee(RefereeConfig(), MINI, Words(), Broken(ZeroDivisionError())).check([proposal("a")], ["vure"], noise)


def test_checks_that_cannot_run_are_refused_when_built() -> None:
    with pytest.raises(InputError, match="chain"):
        Referee(RefereeConfig(verifier="none"), MINI, Words(), None)
    with pytest.raises(InputError, match="engine"):
        Referee(RefereeConfig(verifier="frozen"), MINI, Words(), None)
    rules_only = Referee(RefereeConfig(verifier="none", evidence="none"), MINI, Words(), None)
    assert rules_only.check([proposal("a")], ["vure"], noise)[0].valid


def test_targets_must_match_the_episodes() -> None:
    with pytest.raises(InvariantError):
        referee(lambda prompt: GOOD).check([proposal("a")], [], noise)


def test_material_depends_on_the_episodes_seed_only() -> None:
    def prompts_of(names: list[str]) -> dict[str, str]:
        seen: list[str] = []
        block = [proposal(name) for name in names]
        referee(lambda prompt: GOOD, seen).check(block, ["vure"] * len(block), noise)
        return dict(zip(names, seen, strict=True))

    one, two = prompts_of(["a", "b", "c", "d"]), prompts_of(["d", "b", "c", "a"])
    assert one == two
    assert len(set(one.values())) > 1


def test_noise_is_never_an_own_document_and_as_many_as_there_are() -> None:
    episode = proposal("a")
    picked = pick_noise(episode, [POTA, *NOISE, NOISE[0]], 9, seed=0)
    assert sorted(document.id for document in picked) == ["n0", "n1", "n2", "n3", "n4"]
    assert pick_noise(episode, [POTA, VURE], 2, seed=0) == []
    assert pick_noise(episode, NOISE, 0, seed=0) == []


def test_own_documents_are_taken_once_in_the_order_found() -> None:
    assert [d.id for d in own_documents(proposal("a", documents=(VURE, POTA, VURE)))] == ["d2", "d1"]


def test_over_the_limit_noise_goes_first_then_the_oldest_never_the_question() -> None:
    words, episode = Words(), proposal("a")

    def text(limit: int) -> str | None:
        ids = prompt_ids(episode, NOISE[:2], MINI, lambda t: words.encode(t, add_special_tokens=False), limit, seed=0)
        return None if ids is None else words.decode(ids)

    whole = text(1000)
    assert whole is not None and "noise0" in whole and "noise1" in whole
    size = len(whole.split())
    less = text(size - 1)
    assert less is not None and "noise0" in less and "noise1" not in less and POTA.text in less
    bare = text(size - 8)
    assert bare is not None and "noise0" not in bare and POTA.text in bare and VURE.text in bare
    newest = text(size - 9)
    assert newest is not None and POTA.text not in newest and VURE.text in newest and "pota seat ?" in newest
    assert text(8) is None
