"""Words in any script: folding, counting, finding."""

from __future__ import annotations

import pytest

from ssp.base.words import count, fold, length, names, within, words


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("PARÍS", "paris"),
        ("Pa\u200br\u00adis", "Paris"),
        ("Ｐａｒｉｓ", "Paris"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("Zu\u0308rich", "Zürich"),
        ("ﬁnal", "final"),
        ("Ёлка", "елка"),
        ("ΟΔΟΣ", "οδός"),
        ("كـتاب", "كِتَاب"),
        ("שָׁלוֹם", "שלום"),
        ("ｶﾞｽ", "ガス"),
        ("“a” – b’s", '"a" - b\'s'),
        (" a\u3000b\n\tc ", "a b c"),
    ],
)
def test_spellings_of_one_text_fold_to_one(one: str, two: str) -> None:
    assert fold(one) == fold(two)


@pytest.mark.parametrize(("one", "two"), [("カ", "ガ"), ("हिन्दी", "हन्द"), ("ทำ", "ทา"), ("Paris", "Раris"), ("9", "6")])
def test_different_texts_stay_different(one: str, two: str) -> None:
    assert fold(one) != fold(two)


@pytest.mark.parametrize(
    ("text", "counted", "found"),
    [
        ("", 0, []),
        ("?! …", 0, []),
        ("Who wrote it?", 3, ["who", "wrote", "it"]),
        ("twenty-one U.S. don't", 3, ["twenty", "one", "u", "s", "don", "t"]),
        ("2.5 million, 10,000.", 3, ["2.5", "million", "10,000"]),
        ("誰が書いたか", 6, list("誰が書いたか")),
        ("iOSの東京Tower", 5, ["ios", "の", "東", "京", "tower"]),
        ("스카이 타워", 5, list("스카이타워")),
        ("ใครเขียน", 7, ["ใ", "ค", "ร", "เ", "ขี", "ย", "น"]),
        ("गंगा नदी", 2, ["गंगा", "नदी"]),
        ("Кто написал роман", 3, ["кто", "написал", "роман"]),
    ],
)
def test_words_of_many_scripts(text: str, counted: int, found: list[str]) -> None:
    assert count(text) == counted
    assert words(text) == found


def test_length_is_what_a_reader_sees() -> None:
    assert length(" a  b ") == 3
    assert length("e\u0301\u200b\u200b\u200b") == 1
    assert length("日本") == 2


@pytest.mark.parametrize(
    ("text", "target", "named"),
    [
        ("the capital of the USA?", "U.S.A.", True),
        ("Beatles?", "The Beatles", True),
        ("a 2.5 per cent rise", "2", False),
        ("in 2012", "2", False),
        ("item 2?", "2", True),
        ("10000 men", "10,000", True),
        ("Einstein's wife", "Einstein", True),
        ("l'Italie", "Italie", True),
        ("northern", "north", False),
        ("在北京大学", "北京", True),
        ("東京の塔", "京都", False),
        ("grade A?", "A", True),
        ("nothing", "", True),
        ("a ? b", "?", True),
        ("New pota York", "New York", False),
        ("two cars", "car", True),
        ("a gas leak", "ga", False),
        ("the mass", "mas", False),
    ],
)
def test_what_names_a_target(text: str, target: str, named: bool) -> None:
    assert names(text, target) is named


def test_nothing_stands_nowhere() -> None:
    parts: list[list[str]] = [["a"], ["b", "c"], ["c", "b"], []]
    assert [within(part, ["a", "b", "c"]) for part in parts] == [True, True, False, False]


@pytest.mark.parametrize(
    ("said", "target"),
    [("Sao Paulo", "São Paulo"), ("Lodz", "Łódź"), ("Nukualofa", "Nukuʻalofa"), ("Strasse", "Straße")],
)
def test_another_spelling_names_the_target_too(said: str, target: str) -> None:
    assert names(f"Is it {said}, or another town?", target)
