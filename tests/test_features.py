"""The feature table is complete and up to date."""

from __future__ import annotations

import features


def test_marks_name_known_rows() -> None:
    assert set(features.marks()) <= set(features.FEATURES)


def test_every_row_has_a_test_or_says_why_not() -> None:
    missing = {row for row in features.FEATURES if row not in features.marks()}
    assert missing == set(features.LATER)


def test_the_table_is_as_the_tests_say() -> None:
    assert features.TABLE.read_text(encoding="utf-8") == features.table(), "run python tests/features.py"
