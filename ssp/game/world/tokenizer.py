"""The tokenizer of the embedded policy: one word, one token; and how tokenizers are saved."""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from ssp.game.world.vocabulary import END, PAD, UNKNOWN, VOCABULARY
from ssp.record.manifest import EXACT

CONFIG = "tokenizer_config.json"
CLASS = '''"""This folder's tokenizer: tokenizer.json as it stands, no word splitting of the model's architecture."""

from transformers import PreTrainedTokenizerFast


class ExactTokenizer(PreTrainedTokenizerFast):
    """See above."""
'''


def build() -> PreTrainedTokenizerFast:
    """The tokenizer of all worlds. It has 550 tokens; a word outside the vocabulary becomes
    `<unk>`."""
    ids = {word: id for id, word in enumerate(VOCABULARY)}
    core = Tokenizer(WordLevel(ids, unk_token=UNKNOWN))
    core.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )


def save(made: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write `made` into a model folder so that `AutoTokenizer` gives its ids, with and without
    `trust_remote_code`.

    For a Qwen2 model `AutoTokenizer` replaces a general class by Qwen2's, which splits words in its
    own way, unless the folder names a class of its own. Without trust the general class reads such
    a folder, with trust the class in `CLASS`."""
    made.save_pretrained(folder)
    file = folder / CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["auto_map"] = {"AutoTokenizer": [None, f"{Path(EXACT).stem}.ExactTokenizer"]}
    text = json.dumps(config, indent=2, sort_keys=True)
    file.write_text(f"{text}\n", encoding="utf-8")
    (folder / EXACT).write_text(CLASS, encoding="utf-8")
