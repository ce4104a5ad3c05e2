"""A small library and a reader of it: twenty questions, a search by name, a scripted policy that reads what it is shown."""

from __future__ import annotations

import re

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from ssp.base.episode import Document
from ssp.base.errors import Fault
from ssp.data.readers import Question
from ssp.engines import ScriptedEngine

QUESTIONS = [Question(f"one{i}", f"What is the code of item {i}?", (f"c{i}",), hops=1) for i in range(10)] + [
    Question(f"two{i}", f"What is the code of the friend of item {i}?", (f"c{(i + 1) % 10}",), hops=2)
    for i in range(10)
]
"""Ten that one document answers, ten that need the friend's document too."""


def tokenizer(chat: bool = False) -> PreTrainedTokenizerFast:
    """One token a byte, so that every text has ids."""
    core = Tokenizer(BPE(vocab={char: i for i, char in enumerate(sorted(ByteLevel.alphabet()))}, merges=[]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    core.decoder = ByteDecoder()
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>", unk_token=None)
    if chat:
        made.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }} [/]{% endfor %}[assistant]"
    return made


class Library:
    """Item i's document says who its friend is and what its code is. `down` names a corpus that is out of order."""

    def __init__(self, down: str = "") -> None:
        self.down, self.asked, self.calls = down, [], 0

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """The documents of the items that a query names, in that order."""
        self.calls += 1
        if corpus == self.down:
            raise Fault("retriever_down", "test")
        self.asked += queries
        return [[document(int(i)) for i in dict.fromkeys(re.findall(r"item (\d)", query))][:k] for query in queries]


def document(i: int) -> Document:
    """The document of one item."""
    return Document(
        f"d{i}", f'"Item {i}"\nThe friend of item {i} is item {(i + 1) % 10}. The code of item {i} is c{i}.'
    )


def read(prompt: str) -> str:
    """What a reader with a little knowledge of its own says: it knows four codes, six when it may think first."""
    asked = re.findall(r"code of (the friend of )?item (\d)\?", prompt)[-1]
    friends = dict(re.findall(r"friend of item (\d) is item (\d)", prompt))
    codes = dict(re.findall(r"code of item (\d) is (c\d)", prompt))
    item, known = asked[1], 4 if prompt.rstrip().endswith("Answer:") else 6
    if asked[0]:
        code = codes.get(friends.get(item, ""))
    else:
        code = codes.get(item) or (f"c{item}" if int(item) < known else None)
    if prompt.rstrip().endswith("Answer:"):
        return f" {code or 'unknown'}.\nand more"
    if code is not None:
        reason = f"The friend of item {item} is item {friends[item]}. " if asked[0] else "I see. "
        return (
            f"\nThe answer is {code}.\n" if prompt.rstrip().endswith("sentence:") else f"{reason}The answer is {code}."
        )
    if item in friends and asked[0]:
        return f"The friend of item {item} is item {friends[item]}. It goes on."
    return "Nothing is known."


def reader(tokens: PreTrainedTokenizerFast, script: object = read) -> ScriptedEngine:
    """An engine that says what `script(text so far)` says."""
    return ScriptedEngine(lambda ids, seed, turn: tokens.encode(script(tokens.decode(ids))))  # type: ignore[operator]
