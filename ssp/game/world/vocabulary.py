"""The words of every generated world: tags, relations, types and 512 names."""

import itertools

PAD, UNKNOWN, END = "<pad>", "<unk>", "<eos>"
TAG_NAMES = ("q", "target", "search", "information", "think", "answer", "question")
_PAIRED_TAGS = [(f"<{name}>", f"</{name}>") for name in TAG_NAMES]
TAGS = (PAD, UNKNOWN, END, *itertools.chain.from_iterable(_PAIRED_TAGS))

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

RELATIONS = tuple(itertools.chain.from_iterable(SCHEMA.values()))
WORDS = (ARTICLE, STOP, ASK, NONE, *SCHEMA, *RELATIONS)

NAME_COUNT = 512

_SYLLABLES = list(map("".join, itertools.product("bdfgklmnprtv", "aeiou")))
_PAIRS = list(map("".join, itertools.product(_SYLLABLES, repeat=2)))
_SPREAD = [_PAIRS[(i * 1567 + 11) % len(_PAIRS)] for i in range(len(_PAIRS))]
NAMES = tuple(name for name in _SPREAD if name not in WORDS)[:NAME_COUNT]
"""Names of two syllables. A stride that is coprime to the 3600 combinations spreads them evenly."""
VOCABULARY = TAGS + WORDS + NAMES
"""Token strings in id order."""

FIRST_NAME_ID = len(TAGS) + len(WORDS)
"""Ids from here on are names."""
