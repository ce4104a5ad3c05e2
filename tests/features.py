"""The feature table: which test shows which feature of the reference systems. `python tests/features.py` rewrites it.

Owns docs/features.md, which is made from the `covers` marks of the tests and from the list below. Ids are those of the
study of the reference systems: SR Search-R1, EP EMA-PG, RS ReSearch, SS SSRL, SP Search Self-play, X what went wrong in several,
U what their users fought.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "features.md"

FEATURES = {
    "SR-01": "PPO: clipped ratio, generalised advantages",
    "SR-02": "GRPO: advantages within a group",
    "SR-03": "REINFORCE and REINFORCE++",
    "SR-04": "KL in the reward, fixed or adaptive",
    "SR-05": "KL in the loss: k1, k2, k3, abs",
    "SR-06": "observations are not trained",
    "SR-07": "play without search",
    "SR-08": "supervised warm start; prompts with passages found before",
    "SR-09": "learning-rate schedule, critic warm-up",
    "SR-10": "micro-batches and chunks change no gradient",
    "SR-11": "model families: Llama, Qwen2, Qwen3",
    "SR-12": "several machines: the losses of one, a node that dies",
    "SR-13": "every figure that a user watches, finite",
    "SR-14": "kill and resume, bit for bit",
    "SR-15": "evaluation scores every row once, greedy is greedy",
    "SR-20": "prompt, bytes as in the golden file",
    "SR-21": "turn loop and its bound",
    "SR-22": "invalid actions are told so",
    "SR-23": "length limits, whole documents, the question stays",
    "SR-24": "text of a document",
    "SR-25": "episodes do not wait for each other",
    "SR-26": "any batch over any number of workers",
    "SR-27": "stop strings across tokens, nothing re-tokenised",
    "SR-30": "exact match",
    "SR-31": "substring match, F1",
    "SR-32": "format-aware exact match",
    "SR-33": "the reward sits on the last model token",
    "SR-40": "/retrieve contract",
    "SR-41": "BM25 equals its formula",
    "SR-42": "exact dense search, shards included",
    "SR-43": "HNSW on CPU",
    "SR-44": "any faiss factory, efSearch and nprobe a request",
    "SR-45": "encoder families: prefixes, pooling, norms",
    "SR-46": "cross-encoder reranking",
    "SR-47": "SerpAPI",
    "SR-48": "Google Custom Search, snippets and pages",
    "SR-49": "Bing, Baidu, Yahoo by SerpAPI's names; Serper",
    "SR-50": "index builder: any kind, embeddings kept, resumed",
    "SR-51": "recorded searches answer offline",
    "SR-60": "rows in Search-R1's layout",
    "SR-61": "training files of several sources",
    "SR-62": "test files of several sources",
    "SR-63": "published files load unchanged",
    "SR-70": "asking shows the training rollout",
    "SR-71": "evaluation of a predictions file",
    "EP-01": "EMA anchor with an fp32 master",
    "EP-02": "top-k KL, exact and as published",
    "EP-03": "full-vocabulary KL in chunks",
    "EP-04": "k1 to k5, k3++, clamps",
    "EP-05": "importance weight of the KL",
    "EP-06": "asymmetric clip",
    "EP-07": "GRPO with and without the spread",
    "EP-08": "KL in loss, in reward, after the advantage",
    "EP-09": "the anchor is evaluated with its own weights",
    "EP-10": "the anchor survives a restart, bit for bit",
    "EP-11": "AdamW's betas",
    "EP-12": "length limits in stages",
    "RS-01": "recipe trains a step",
    "RS-02": "prompt templates, base and chat",
    "RS-03": "boxed answers",
    "RS-04": "search inside one turn",
    "RS-05": "result text, exact white space",
    "RS-06": "reward 0, 0.1 or F1",
    "RS-07": "/search, /batch_search, /health contract",
    "RS-08": "every rollout on record, rewards recomputed",
    "RS-09": "keeps the last N checkpoints",
    "RS-10": "several nodes: the same run",
    "RS-11": "baseline methods",
    "RS-12": "LLM judge counts what it could not decide",
    "SS-01": "self-search: no request leaves",
    "SS-02": "SSRL's reward mix",
    "SS-03": "SSRL's format score",
    "SS-04": "self-written information is not trained",
    "SS-05": "sim2real evaluation",
    "SS-06": "the first K searches are real",
    "SS-07": "entropy-guided search",
    "SS-08": "online engine adapter",
    "SS-09": "search cache with a time to live",
    "SS-10": "pass@k, mean@k, majority vote",
    "SS-11": "model-family layouts",
    "SS-12": "engines behind one interface",
    "SS-13": "report by set: accuracy, length, searches",
    "SP-01": "proposer to question to attempts to two losses",
    "SP-02": "proposer's rewards",
    "SP-03": "solver's reward, judge, anti-spam",
    "SP-04": "question filter, fail closed",
    "SP-05": "batch strategies",
    "SP-06": "each role its own algorithm; a shared policy's combined update",
    "SP-07": "services are waited for",
    "SP-08": "training without question-answer pairs",
    "SP-09": "judge, EM and F1 in evaluation",
    "U4": "memory by part before a start, refused with a table",
    "U9": "started again after a crash without cleaning",
    "U10": "no process is left, whatever was killed",
    "U11": "ports can be chosen, 0 takes a free one, a taken one is named",
    "U12": "servers say when they are ready, and are waited for with a deadline",
    "X-03": "a collapse is found and rolled back",
}
"""Row id → what it is, in a few words. The rest of learning follows."""

LATER: dict[str, str] = {}
"""Rows without a test yet, and what they belong to."""


@functools.cache
def marks() -> dict[str, list[str]]:
    """Row id → tests that carry it, as `file::test`, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.covers":
                        for row in ast.literal_eval(ast.List(decorator.args, ast.Load())):
                            found[row].append(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return found


def table() -> str:
    """docs/features.md."""
    found = marks()
    lines = [
        "# Features of the reference systems, and the tests that show them",
        "",
        "Made by `python tests/features.py` from the tests' `covers` marks; a test fails when it is out of date. SR is",
        "Search-R1, EP EMA-PG, RS ReSearch, SS SSRL, SP Search Self-play, X what went wrong in several, U what their users",
        "fought. `bash launch/test.sh --nightly` runs every test below.",
        "",
        "| id | feature | tests | status |",
        "|---|---|---|---|",
    ]
    for row, what in FEATURES.items():
        tests = "<br>".join(f"`{name}`" for name in found.get(row, []))
        status = "tested" if tests else f"not yet: {LATER.get(row, 'open')}"
        lines.append(f"| {row} | {what} | {tests} | {status} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
    print(f"{TABLE}: {sum(row in marks() for row in FEATURES)} of {len(FEATURES)} rows have a test")
