"""How an encoder turns text into a vector, read from its name and its own files; a pooling is never
guessed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssp.base.errors import InputError, hold, holding
from ssp.base.models import read_json

POOLINGS = ("mean", "cls", "pooler", "decoder", "last")
LENGTH = 256
"""Tokens of a query and of a passage, where neither the caller nor the files give fewer."""
_POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_FAMILIES: dict[str, dict[str, Any]] = {
    "e5-instruct": {
        "query_prefix": "Instruct: Find the passages that answer the question\nQuery: ",
        "pooling": "mean",
    },
    "e5": {"query_prefix": "query: ", "passage_prefix": "passage: ", "pooling": "mean"},
    "bge-m3": {"pooling": "cls"},
    "bge-zh": {"query_prefix": "为这个句子生成表示以用于检索相关文章：", "pooling": "cls"},  # noqa: RUF001 (the model's own)
    "bge": {
        "query_prefix": "Represent this sentence for searching relevant passages: ",
        "pooling": "cls",
    },
    "contriever": {"pooling": "mean"},
    "jina": {"pooling": "mean"},
    "dpr": {"pooling": "pooler", "normalise": False},
    "t5": {"pooling": "decoder"},
}
"""Facts of each family, from its model cards; what is not said: no prefix, length 1. A name that
has a family's words is of it, the first one counts; T5 is known by its type."""
T5 = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
_PADDED_POSITIONS = (
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "xmod",
    "longformer",
)
"""Models that number positions from behind the padding's id on."""


@dataclass(frozen=True)
class EncoderSpec:
    """How texts become vectors. `model`: name or folder as given; `family`: the rule that fired
    (see `detect`). `pooling`: mean over the text's tokens, cls (the first), last, pooler (the
    model's own output), decoder (the first position of an encoder-decoder's decoder). `normalise`:
    to length 1. `projection`: always false (of older index folders). Lengths in tokens, special
    ones included: `max_length` of queries, `passage_length`."""

    model: str
    family: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: str = "mean"
    normalise: bool = True
    max_length: int = LENGTH
    passage_length: int = LENGTH
    projection: bool = False


def detect(folder: Path, model: str, given: Mapping[str, Any] | None = None) -> EncoderSpec:
    """How the encoder in `folder` is used. Of each field counts what is said first by `given` (the
    caller's word), the files of a sentence-transformers folder (modules.json with Pooling and
    Normalize, prompts, lengths), and the family that a word of `model`, of the folder's name or of
    config.json names. InputError for a folder that says nothing (set `pooling`) and for modules
    that are not supported."""
    said, folder = dict(given or {}), Path(folder)
    body = body_folder(folder)
    config = read_json(body / "config.json")
    files = {} if (modules := read_modules(folder)) is None else _of_files(folder, body, modules)
    family = _family(config, model, folder)
    facts: dict[str, Any] = {"family": "sentence-transformers" if files and not family else family}
    facts |= {**_FAMILIES.get(family, {}), **files, **said}
    found = f"{model} ({config.get('model_type', 'no model_type')}) has neither"
    step = f"set --pooling ({', '.join(POOLINGS)}), and the prefixes if it has some"
    hold(
        "pooling" in facts,
        "an encoder's pooling is known by its modules.json or its name",
        found,
        step,
    )
    limit = position_limit(body, config)
    for name, most in (
        ("max_length", LENGTH),
        ("passage_length", max(LENGTH, files.get("passage_length", 0))),
    ):
        if name not in said:
            facts[name] = min(facts.get(name, most), most, limit)
    return EncoderSpec(**{**facts, "model": model})


def read_modules(folder: Path) -> list[tuple[str, Path]] | None:
    """Kind and folder of each module of a sentence-transformers folder, in order; None for a plain
    model folder."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    rule = "modules.json lists modules with type and path"
    with holding(
        (TypeError, KeyError), rule, lambda error: f"{path}: {error!r}", "save the model again"
    ):
        modules = [
            (str(m["type"]).rsplit(".", 1)[-1], folder / str(m["path"]))
            for m in read_json(path, list)
        ]
    kinds = " ".join(kind for kind, _ in modules)
    if kinds not in ("Transformer Pooling", "Transformer Pooling Normalize"):
        raise InputError(
            "an encoder's modules are Transformer, Pooling, Normalize", kinds, "use another encoder"
        )
    return modules


def body_folder(folder: Path) -> Path:
    """Where the transformer itself lies: `folder`, or a folder inside it that modules.json
    names."""
    modules = read_modules(folder)
    return folder if modules is None else modules[0][1]


def position_limit(body: Path, config: Mapping[str, Any]) -> int:
    """Most tokens that the model reads at once."""
    limits = [1 << 20]
    if isinstance(positions := config.get("max_position_embeddings"), int) and positions > 0:
        padded = config.get("model_type") in _PADDED_POSITIONS
        limits.append(positions - (config.get("pad_token_id", 1) + 1 if padded else 0))
    if (body / "tokenizer_config.json").is_file():
        most = read_json(body / "tokenizer_config.json").get("model_max_length")
        limits += [int(most)] if isinstance(most, int | float) and most > 0 else []
    return min(limits)


def _of_files(folder: Path, body: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    """What the files of a sentence-transformers folder say."""
    facts: dict[str, Any] = {
        "normalise": len(modules) > 2,
        "pooling": _pooling(modules[1][1] / "config.json"),
    }
    for path in sorted(body.glob("sentence_*_config.json")):
        said = read_json(path)
        if said.get("do_lower_case"):
            raise InputError(
                "an encoder's tokenizer decides on case",
                f"{path}: do_lower_case",
                "use another encoder",
            )
        if said.get("max_seq_length"):
            facts["max_length"] = facts["passage_length"] = int(said["max_seq_length"])
    if (path := folder / "config_sentence_transformers.json").is_file():
        said = read_json(path)
        prompts = said.get("prompts") or {}
        default = prompts.get(said.get("default_prompt_name") or "") or ""
        query = prompts.get("query") or default
        passage = prompts.get("passage") or prompts.get("document") or default
        facts |= {"query_prefix": query, "passage_prefix": passage} if query or passage else {}
    return facts


def _pooling(path: Path) -> str:
    """The pooling that a Pooling module's config (of either form) names."""
    said = read_json(path)
    modes = said.get("pooling_mode") or [
        name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for name, on in said.items()
        if name.startswith("pooling_mode_") and on is True
    ]
    modes = [modes] if isinstance(modes, str) else modes
    if len(modes) != 1 or modes[0] not in _POOLINGS or said.get("include_prompt") is False:
        rule = "an encoder pools one way (mean, cls, lasttoken), prefixes included"
        raise InputError(rule, f"{path}: {said}", "use another encoder")
    return _POOLINGS[modes[0]]


def _family(config: Mapping[str, Any], model: str, folder: Path) -> str:
    """The family that a name or the model's class shows; "" when none."""
    for name in (model, str(folder), str(config.get("_name_or_path", ""))):
        word = re.split(r"[/\\]", name.rstrip("/\\"))[-1].lower().replace("_", "-")
        for family in _FAMILIES:
            words = family.replace("-", r"\b.*\b")
            if family != "t5" and re.search(rf"\b{words}\b", word):
                return family
    if config.get("model_type") == "dpr":
        return "dpr"
    only_encoder = any("EncoderModel" in str(name) for name in config.get("architectures") or ())
    return "t5" if config.get("model_type") in T5 and not only_encoder else ""
