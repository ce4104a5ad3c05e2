"""Every reward against a second implementation on thousands of generated texts: no crash, equal values, invariants."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import oracle
import pytest
from oracle import GOLDS

from ssp.game import rewards
from ssp.game.judge import normalise
from ssp.game.rewards.forms import form

COUNT = 2200


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return oracle.texts(COUNT, seed=3)


def values(name: str, texts: list[str], **options: object) -> list[float]:
    return [rewards.get(name)(text, GOLDS, **options) for text in texts]


def test_normalisation(texts: list[str]) -> None:
    assert [normalise(text) for text in texts] == [oracle.normalise(text) for text in texts]


@pytest.mark.covers("SR-30", "SR-31")
def test_em_sub_em_and_f1(texts: list[str]) -> None:
    em, sub_em, f1 = (values(name, texts) for name in ("em", "sub_em", "f1"))
    assert em == [oracle.em(text, GOLDS) for text in texts]
    assert sub_em == [oracle.sub_em(text, GOLDS) for text in texts]
    assert f1 == pytest.approx([oracle.f1(text, GOLDS) for text in texts], abs=1e-12)
    assert all(a <= b for a, b in zip(em, sub_em, strict=True))
    assert all(b == 1.0 for a, b in zip(em, f1, strict=True) if a == 1.0)
    assert all(0.0 <= value <= 1.0 for value in f1)
    assert 200 < sum(em) < sum(sub_em) < COUNT and len({round(value, 6) for value in f1}) > 4


@pytest.mark.covers("SR-32")
@pytest.mark.parametrize(("s", "f", "r"), [(0.2, 0.1, 0.1), (0.3, 0.0, 0.0)])
def test_format_em(texts: list[str], s: float, f: float, r: float) -> None:
    found = values("format_em", texts, structure=s, final=f, retrieval=r)
    assert found == [oracle.format_em(text, GOLDS, s, f, r) for text in texts]
    assert set(found) == {1.0, 1.0 - s, s + r, s, f, 0.0}
    em = values("em", texts)
    assert all((value >= 1.0 - s) == (right == 1.0) for value, right in zip(found, em, strict=True))


@pytest.mark.covers("RS-06")
def test_research(texts: list[str]) -> None:
    found = values("research", texts)
    assert found == pytest.approx([oracle.research(text, GOLDS) for text in texts], abs=1e-12)
    assert all(0.0 <= value <= 1.0 for value in found)
    assert min(Counter(found)[value] for value in (0.0, 0.1, 1.0)) > 50
    assert set(values("research", texts, ended=False)) == {0.0}
    careful = values("research", texts, think_first=True)
    assert all(value in (0.0, plain) for value, plain in zip(careful, found, strict=True))


@pytest.mark.covers("SS-02", "SS-03")
@pytest.mark.parametrize("weight", [0.9, 0.0])
def test_ssrl(texts: list[str], weight: float) -> None:
    forms = [form(text) for text in texts]
    assert forms == pytest.approx([oracle.recalling_form(text) for text in texts], abs=1e-12)
    found = values("ssrl", texts, answer_weight=weight)
    assert found == [weight * e + (1.0 - weight) * f for e, f in zip(values("em", texts), forms, strict=True)]
    assert all(0.0 <= value <= 1.0 for value in found)
    assert sum(value > 0 for value in forms) > 300 and len(set(forms)) > 3


@pytest.mark.covers("SP-03")
@pytest.mark.parametrize("judged", [None, True])
def test_ssp(texts: list[str], judged: bool | None) -> None:
    spammed = [text * 12 if i % 20 == 0 else text for i, text in enumerate(texts)]
    found = values("ssp", spammed, judged=judged)
    assert found == [oracle.ssp(text, GOLDS, judged) for text in spammed]
    assert set(found) == ({0.25, 1.0} if judged else {0.0, 0.25, 1.0})


def test_math_of_generated_fractions() -> None:
    """Boxes around numbers in several spellings, some broken, against exact arithmetic."""
    rng = random.Random(5)
    cases = [_boxed_number(rng) for _ in range(2000)]
    gold = Fraction(3, 4)
    found = [rewards.get("math")(text, ["\\frac{3}{4}"]) for text, _ in cases]
    assert found == [float(value == gold) for _, value in cases]
    assert 100 < sum(found) < 1500


def _boxed_number(rng: random.Random) -> tuple[str, Fraction | None]:
    """A text, and the value of its last box; None when it has none that is closed."""
    top, bottom = rng.choice(
        ((3, 4), (6, 8), (-3, -4), (1, 2), (4, 3), (3, 40), (0, 4), (75, 100), (rng.randrange(99), 7))
    )
    value = Fraction(top, bottom)
    spelled = f"\\frac{{{top}}}{{{bottom}}}"
    if top > 0 and bottom in (2, 4, 8, 40, 100):
        spelled = rng.choice(
            (spelled, f"{top}/{bottom}", f"\\dfrac{{{top}}}{{{bottom}}}", str(top / bottom), f"{{{top / bottom}}}")
        )
    noise = "".join(rng.choice(("so ", "{", "}", "<think>", "\\boxed ", "é", "\n", "$", "boxed{1}")) for _ in range(4))
    kind = rng.randrange(8)
    if kind == 0:
        return noise + spelled, None
    if kind == 1:
        return f"{noise}\\boxed{{{spelled}", None
    if kind == 2:
        return f"\\boxed{{1}} {noise} <information>\\boxed{{3/4}}</information>", Fraction(1)
    if kind == 3:
        return f"\\boxed{{0}}{noise}<answer>\\boxed{{{spelled}}}</answer><eos>", value
    return f"{noise}\\boxed{{{spelled}}} so", value
