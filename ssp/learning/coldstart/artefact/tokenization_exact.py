"""This folder's tokenizer: tokenizer.json as it stands, no word splitting of the model's architecture."""

from transformers import PreTrainedTokenizerFast


class ExactTokenizer(PreTrainedTokenizerFast):
    """See above."""
