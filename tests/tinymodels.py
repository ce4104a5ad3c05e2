"""Tiny random encoders of each family, written to folders as their makers' tools write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
    MT5Config,
    MT5EncoderModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Model,
    T5Config,
    T5Model,
    XLMRobertaConfig,
    XLMRobertaModel,
)

WORDS = "who founded the city of pota vure bino seat a river in query passage : title company ##s ##ed . , ?".split()
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
PLACES = {"max_position_embeddings": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}


def wordpiece(
    folder: Path, specials: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]"), ends: str = "both"
) -> int:
    """Save a tokenizer of WORDS and characters; returns its size. `ends`: special tokens on both sides, last or none."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = dict.fromkeys([*specials, *WORDS, *letters, *(f"##{letter}" for letter in letters)])
    vocab = {word: i for i, word in enumerate(words)}
    pad, unk, first, last = sorted(specials, key=["[PAD]", "[UNK]", "[CLS]", "[SEP]"].index)
    rust = Tokenizer(models.WordPiece(vocab, unk_token=unk))
    rust.normalizer, rust.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece()
    marks = [(first, vocab[first]), (last, vocab[last])]
    if ends == "both":
        pair = f"{first} $A {last} $B:1 {last}:1"
        rust.post_processor = processors.TemplateProcessing(f"{first} $A {last}", pair, marks)
    elif ends == "last":
        rust.post_processor = processors.TemplateProcessing(f"$A {last}", f"$A {last} $B {last}", marks[1:])
    names = {"pad_token": pad, "unk_token": unk, "cls_token": first, "sep_token": last}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=rust, model_input_names=inputs, **names).save_pretrained(folder)
    return len(vocab)


def save(folder: Path, family: str, **more: Any) -> Path:
    """A model of `family` (bert, xlmr, t5, mt5, dprq, dprc, qwen, cross1, cross2, cross3) with its tokenizer."""
    torch.manual_seed(sum(family.encode()))
    specials = ("[CLS]", "[PAD]", "[SEP]", "[UNK]") if family == "xlmr" else ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    ends = {"t5": "last", "mt5": "last", "qwen": "none"}.get(family, "both")
    words = {"vocab_size": wordpiece(folder, specials, ends)}
    bert = {**SIZE, **PLACES, **words, "initializer_range": 0.3}
    made: Any
    if family == "bert":
        made = BertModel(BertConfig(**bert, **more))
    elif family == "xlmr":
        made = XLMRobertaModel(XLMRobertaConfig(**{**bert, "max_position_embeddings": 66, "pad_token_id": 1}, **more))
    elif family in ("dprq", "dprc"):
        made = (DPRQuestionEncoder if family == "dprq" else DPRContextEncoder)(DPRConfig(**bert, **more))
    elif family == "t5":
        made = T5Model(T5Config(**T5, **words, **more))
    elif family == "mt5":
        made = MT5EncoderModel(MT5Config(**T5, **words, **more))
    elif family == "qwen":
        made = Qwen2Model(Qwen2Config(**bert, num_key_value_heads=2, pad_token_id=0, **more))
    else:
        made = BertForSequenceClassification(BertConfig(**bert, num_labels=int(family[-1]), **more))
    made.save_pretrained(folder)
    return folder


def sentence_transformer(folder: Path, pooling: dict[str, Any], normalise: bool = True) -> Path:
    """Make the folder of a bert a sentence-transformers one: modules.json and what it names."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    modules = []
    for i, kind in enumerate(kinds):
        path = f"{i}_{kind}" if i else ""
        modules.append({"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"})
        (folder / path).mkdir(exist_ok=True)
    write(folder / "modules.json", modules)
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **pooling})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 48, "do_lower_case": False})
    return folder


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


__all__ = ["save", "sentence_transformer", "wordpiece", "write"]
