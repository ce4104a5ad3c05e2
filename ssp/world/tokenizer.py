"""The tokenizer of the embedded policy: one word, one token.

Owns the map from the closed vocabulary to ids. Promises that every tag, relation and name is exactly one token, that
ids follow `ssp.world.vocabulary`, and that text made of these words survives encode and decode.
Refuses to know what the words mean.
"""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from ssp.world.vocabulary import END, PAD, UNKNOWN, VOCABULARY


def build() -> PreTrainedTokenizerFast:
    """The tokenizer, the same for all worlds: 550 tokens; a word outside the vocabulary becomes `<unk>`."""
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token=UNKNOWN))
    core.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
