"""A tokenizer without a protocol: text of ids, and a plain question as its chat template asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DATE = "26 Jul 2024"
"""Today's date for templates that tell it (Llama 3.1's own default): prompts stay the same."""


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Text of `ids`, with special tokens. Spaces are never cleaned up: " ?" must stay what the
    policy wrote."""
    # transformers' own `decode` looks at each id first, which costs more than the text.
    plain: Any = tokenizer
    return str(plain.backend_tokenizer.decode(list(ids), skip_special_tokens=False))


def ask(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of `text` as a user's only message, by the chat template; where the tokenizer has none,
    behind the tokens that it puts before every text."""
    if not tokenizer.chat_template:
        return list(tokenizer.encode(text))
    messages = [{"role": "user", "content": text}]
    shown = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, date_string=DATE
    )
    return list(tokenizer.encode(str(shown), add_special_tokens=False))
