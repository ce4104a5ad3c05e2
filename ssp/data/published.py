"""What the reference systems published on the Hugging Face hub, by short name.

Owns the table. Promises nothing about the hub: a revision or sha256 stands here only where it is known, and is then
required of what is fetched. Refuses to fetch (`ssp.data.hub`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Published:
    """One repository: `type` dataset or model, `files` patterns of what is taken (none: everything).

    `sha256`: file → checksum at `revision`. `join`: the file that the `part_*` files are, one after another. `unpacked`:
    bytes of the .gz files when unpacked, where known. `gigabytes`: about what is fetched, 0 when not known.
    """

    repo: str
    type: str
    about: str = ""
    revision: str = "main"
    files: tuple[str, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    join: str = ""
    unpacked: int = 0
    gigabytes: float = 0.0


WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "README.md", "LICENSE*")
"""A model's safetensors weights, tokenizer and config, without copies in other formats."""

SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
"""The seven sets of Search-R1 and SSP, as FlashRAG names its folders (reference seeds.md 1.1.5)."""

_SSP_REVISION = "ce7a0dfbc862f923ad1668a471c409b2e023b73f"

PUBLISHED: dict[str, Published] = {
    "nq_hotpotqa_train": Published(
        "PeterJinGo/nq_hotpotqa_train",
        "dataset",
        "Search-R1: 169,615 training and 51,713 test questions",
        revision="b7d80abfee334a7a91cb377544f09180d58b34f6",
        files=("*.parquet",),
        sha256={
            "train.parquet": "c3cc21e862a8469105de666101578cbff23cdc77e91a803cef102622c89cc4f6",
            "test.parquet": "30aa887b6d47e06e8c0f6f5307c88fe4e13461ac25a20ec0a5433ad7a4fe25dc",
        },
        gigabytes=0.43,
    ),
    "wiki-18-corpus": Published(
        "PeterJinGo/wiki-18-corpus",
        "dataset",
        "Search-R1: 21 million passages (the .gz holds a tar; --unpack takes the jsonl out)",
        revision="69c1c00ffe7c5554c68d8548355cb22e46aabc51",
        files=("wiki-18.jsonl.gz",),
        sha256={"wiki-18.jsonl.gz": "7abd929223399cd63c52b499f289bf4f9039be1e9f8c43e1cb3938305b2317db"},
        unpacked=14_393_573_105,
        gigabytes=5.1,
    ),
    "wiki-18-e5-index": Published(
        "PeterJinGo/wiki-18-e5-index",
        "dataset",
        "Search-R1: exact e5 index of that corpus",
        revision="a4d31160a035f30764604f4827cd8f1d0315eb86",
        files=("part_*",),
        sha256={
            "part_aa": "a8a6a246951da4bbc8771a223283ef61963882a32864d9044ec00abb90fc3023",
            "part_ab": "b6d9bc943626fe7cb44de4c849e9379e7f272ab216c0552acbcf2390cc033c11",
        },
        join="e5_Flat.index",
        gigabytes=64.6,
    ),
    "wiki-18-e5-index-hnsw64": Published(
        "PeterJinGo/wiki-18-e5-index-HNSW64",
        "dataset",
        "Search-R1: approximate e5 index for CPUs",
        files=("part_*",),
        join="e5_HNSW64.index",
    ),
    "wiki-18-bm25-index": Published(
        "PeterJinGo/wiki-18-bm25-index",
        "dataset",
        "Search-R1: Lucene BM25 index (ours: ssp index)",
        revision="2c7554f25f425038c4bcb155735a0f831851fd78",
        files=("bm25/*",),
        gigabytes=2.3,
    ),
    "ssp-targets": Published(
        "Quark-LLM/SSP",
        "dataset",
        "SSP: 50,000 target answers",
        revision=_SSP_REVISION,
        files=("train_answers_random_hop_50000_proposer.jsonl",),
    ),
    "ssp-test": Published(
        "Quark-LLM/SSP",
        "dataset",
        "SSP: 3,125 test questions, 500 of each set and Bamboogle",
        revision=_SSP_REVISION,
        files=("test.jsonl",),
        sha256={"test.jsonl": "871c7b7cdec2e090e8597ef26a9a973a46aad0830bb1e016679dddd748462f50"},
    ),
    "flashrag": Published(
        "RUC-NLPIR/FlashRAG_datasets",
        "dataset",
        "the seven question sets (others: --only 'NAME/*')",
        files=tuple(f"{name}/*.jsonl" for name in SETS),
    ),
    "e5-base-v2": Published(
        "intfloat/e5-base-v2",
        "model",
        "encoder of the e5 indexes",
        revision="f52bf8ec8c7124536f0efb74aca902b2995e5bcd",
        files=WEIGHTS,
    ),
    "minilm-reranker": Published(
        "cross-encoder/ms-marco-MiniLM-L12-v2", "model", "Search-R1's cross-encoder", files=WEIGHTS
    ),
    "qwen2.5-3b": Published("Qwen/Qwen2.5-3B", "model", "base policy", files=WEIGHTS, gigabytes=6.2),
    "qwen2.5-7b": Published("Qwen/Qwen2.5-7B", "model", "base policy", files=WEIGHTS, gigabytes=15.2),
    "qwen2.5-7b-instruct": Published("Qwen/Qwen2.5-7B-Instruct", "model", "policy", files=WEIGHTS, gigabytes=15.2),
    "qwen2.5-32b-instruct": Published(
        "Qwen/Qwen2.5-32B-Instruct", "model", "SSP's judge", files=WEIGHTS, gigabytes=65.5
    ),
    "qwen3-8b": Published("Qwen/Qwen3-8B", "model", "policy", files=WEIGHTS, gigabytes=16.4),
    "llama-3.1-8b-instruct": Published(
        "meta-llama/Llama-3.1-8B-Instruct", "model", "policy; asks for terms", files=WEIGHTS, gigabytes=16.1
    ),
    "llama-3.2-3b-instruct": Published(
        "meta-llama/Llama-3.2-3B-Instruct", "model", "policy; asks for terms", files=WEIGHTS, gigabytes=6.4
    ),
}
