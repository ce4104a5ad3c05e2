"""The words of every generated world: tags, relations, types and 512 names."""

PAD, UNKNOWN, END = "<pad>", "<unk>", "<eos>"
TAG_NAMES = ("q", "target", "search", "information", "think", "answer", "question")
TAGS = (PAD, UNKNOWN, END) + tuple(tag for name in TAG_NAMES for tag in (f"<{name}>", f"</{name}>"))

ARTICLE, STOP, ASK, NONE = "a", ".", "?", "none"

COUNTS = {"person": 130, "city": 60, "company": 60, "book": 110, "country": 30}
"""Entities of each type in one world, 390 in all."""

SCHEMA = {
    "person": {"mentor": "person", "birthplace": "city", "employer": "company"},
    "city": {"nation": "country", "mayor": "person"},
    "company": {"founder": "person", "seat": "city"},
    "book": {"author": "person", "setting": "city", "publisher": "company"},
    "country": {"capital": "city", "leader": "person"},
}
"""type → relation → type of its object. Every relation is functional: one object a subject."""

RELATIONS = tuple(relation for relations in SCHEMA.values() for relation in relations)
WORDS = (ARTICLE, STOP, ASK, NONE) + tuple(SCHEMA) + RELATIONS

NAME_COUNT = 512


_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprtv" for vowel in "aeiou"]
_PAIRS = [first + second for first in _SYLLABLES for second in _SYLLABLES]
_SPREAD = [_PAIRS[(i * 1567 + 11) % len(_PAIRS)] for i in range(len(_PAIRS))]
NAMES = tuple(name for name in _SPREAD if name not in WORDS)[:NAME_COUNT]
"""Two-syllable names; a stride that is coprime to the 3600 combinations spreads them evenly."""
VOCABULARY = TAGS + WORDS + NAMES
"""Token strings in id order."""

FIRST_NAME_ID = len(TAGS) + len(WORDS)
"""Ids from here on are names."""
