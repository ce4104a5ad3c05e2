"""Near-duplicates: the measure by hand, and the groups by their definition."""

from __future__ import annotations

import random

import pytest

from ssp.selfplay.questions import groups
from ssp.selfplay.questions.groups import NEAR, features, group, similarity


def test_features_are_words_and_neighbours_folded() -> None:
    assert features("Who  wrote Émma?") == {"who", "wrote", "emma", "who wrote", "wrote emma"}
    assert features("?!") == frozenset() and similarity(features("?!"), features("...")) == 0.0


@pytest.mark.parametrize(
    ("one", "other", "answers", "near"),
    [
        ("Who wrote Emma ?", "who wrote emma", "Austen/Woodhouse", True),
        ("koku seat ?", "koku founder ?", "riva/riva", False),
        ("koku seat founder ?", "koku founder seat ?", "riva/riva", False),
        ("In which year was the author of the novel Emma born in England , do you know ?",
         "In which year was the author of the novel Persuasion born in England , do you know ?", "1775/ 1775.", True),
        ("In which year was the author of the novel Emma born in England , do you know ?",
         "In which year was the author of the novel Middlemarch born in England , do you know ?", "1775/1819", False),
        ("What is the capital city of the country that is called France ?",
         "What is the capital city of the country that is called Spain ?", "Paris/Madrid", False),
        ("In which year was the author of Emma born ?", "Where did the painter of Guernica die ?", "1775/1775", False),
        ("?", "!", "riva/riva", False),
    ],
)  # fmt: skip
def test_what_is_near(one: str, other: str, answers: str, near: bool) -> None:
    """Of one template with other things and other answers no question is like another."""
    assert group([one, other], answers.split("/")) == ([0, 0] if near else [0, 1])
    recent = groups.Recent(1)
    assert [recent.near(*both) for both in zip((one, other), answers.split("/"), strict=True)] == [False, near]


def by_every_pair(questions: list[str], answers: list[str]) -> list[int]:
    """The same groups by the definition."""
    sets, first = [features(question) for question in questions], list(range(len(questions)))
    changed = True
    while changed:
        changed = False
        for i in range(len(sets)):
            for j in range(i):
                alike = similarity(sets[i], sets[j]) >= (NEAR if answers[i] == answers[j] else 1)
                if alike and first[i] != first[j]:
                    low, high = sorted((first[i], first[j]))
                    first, changed = [low if place == high else place for place in first], True
    return first


@pytest.mark.parametrize("seed", range(8))
def test_no_pair_is_missed(seed: int) -> None:
    """Variations of a few sentences, some of them empty or one word long, in any order."""
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(30)]
    bases = [[rng.choice(words) for _ in range(rng.randint(0, 16))] for _ in range(6)]
    questions, answers = [], [rng.choice("ab") for _ in range(80)]
    for _ in range(80):
        said = list(rng.choice(bases))
        for _ in range(rng.randint(0, 2)):
            if said:
                said[rng.randrange(len(said))] = rng.choice(words)
        questions.append(" ".join(said) + " ?")
    found = group(questions, answers)
    assert found == by_every_pair(questions, answers) and 1 < len(set(found)) < len(questions)
    order = list(range(len(questions)))
    rng.shuffle(order)
    again = group([questions[place] for place in order], [answers[place] for place in order])
    together = {frozenset(i for i in order if found[i] == head) for head in found}
    assert {frozenset(order[i] for i in range(len(order)) if again[i] == head) for head in again} == together
