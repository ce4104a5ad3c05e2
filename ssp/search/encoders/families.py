"""How an encoder turns text into a vector, read from its name and its own files; a pooling is never
guessed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssp.base.errors import InputError
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
"""What the model cards of each family say; where nothing is said, a text has no prefix and a vector
length 1. A name belongs to the first family whose words it has; T5 is known by its type."""
T5 = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
_ROBERTAS = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert")
_PADDED_POSITIONS = (*_ROBERTAS, "mpnet", "xmod", "longformer")
"""Models whose first position has the number behind the padding's id."""


@dataclass(frozen=True)
class EncoderSpec:
    """How texts become vectors. `model`: name or folder as given; `family`: the rule that fired
    (see `detect`).

    `pooling` is mean over the text's tokens, cls (the first token), last, pooler (the model's own
    output) or decoder (the first position of an encoder-decoder's decoder). `normalise`: to length
    1. `max_length` of queries and `passage_length` count tokens, special ones included.
    `projection` is always false: older index folders say it."""

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
    """How the encoder in `folder` is used. Each field is what the first of these says about it:
    `given` (the caller's word), the files of a sentence-transformers folder (modules.json with
    Pooling and Normalize, prompts, lengths), and the family that a word of `model`, of the folder's
    name or of config.json names. InputError for a folder that says nothing (set `pooling`) and for
    modules that are not supported."""
    folder = Path(folder)
    said = dict(given or {})
    body = body_folder(folder)
    config = read_json(body / "config.json")
    modules = read_modules(folder)
    files = {} if modules is None else _read_files(folder, body, modules)
    family = _family(config, model, folder)
    facts: dict[str, Any] = {"family": "sentence-transformers" if files and not family else family}
    facts |= {**_FAMILIES.get(family, {}), **files, **said}
    if "pooling" not in facts:
        rule = "an encoder's pooling is known by its modules.json or its name"
        unknown = f"{model} ({config.get('model_type', 'no model_type')}) has neither"
        step = f"set --pooling ({', '.join(POOLINGS)}), and the prefixes if it has some"
        raise InputError(rule, unknown, step)

    limit = position_limit(body, config)
    passages = max(LENGTH, files.get("passage_length", 0))
    for name, most in (("max_length", LENGTH), ("passage_length", passages)):
        if name not in said:
            facts[name] = min(facts.get(name, most), most, limit)
    return EncoderSpec(**{**facts, "model": model})


def read_modules(folder: Path) -> list[tuple[str, Path]] | None:
    """Kind and folder of each module of a sentence-transformers folder, in order; None for a plain
    model folder."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    modules = []
    try:
        for module in read_json(path, list):
            kind = str(module["type"]).rsplit(".", 1)[-1]
            modules.append((kind, folder / str(module["path"])))
    except (TypeError, KeyError) as error:
        rule = "modules.json lists modules with type and path"
        raise InputError(rule, f"{path}: {error!r}", "save the model again") from error
    kinds = " ".join(kind for kind, _ in modules)
    if kinds not in ("Transformer Pooling", "Transformer Pooling Normalize"):
        rule = "an encoder's modules are Transformer, Pooling, Normalize"
        raise InputError(rule, kinds, "use another encoder")
    return modules


def body_folder(folder: Path) -> Path:
    """The folder of the transformer itself: `folder`, or one inside it that modules.json names."""
    modules = read_modules(folder)
    return folder if modules is None else modules[0][1]


def position_limit(body: Path, config: Mapping[str, Any]) -> int:
    """Most tokens that the model reads at once."""
    limit = 1 << 20
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and positions > 0:
        if config.get("model_type") in _PADDED_POSITIONS:
            positions -= config.get("pad_token_id", 1) + 1
        limit = min(limit, positions)
    tokenizer = body / "tokenizer_config.json"
    if tokenizer.is_file():
        most = read_json(tokenizer).get("model_max_length")
        if isinstance(most, int | float) and most > 0:
            limit = min(limit, int(most))
    return limit


def _read_files(folder: Path, body: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    """What the files of a sentence-transformers folder say."""
    pooling = _pooling(modules[1][1] / "config.json")
    facts: dict[str, Any] = {"normalise": len(modules) > 2, "pooling": pooling}
    for path in sorted(body.glob("sentence_*_config.json")):
        said = read_json(path)
        if said.get("do_lower_case"):
            rule = "an encoder's tokenizer decides on case"
            raise InputError(rule, f"{path}: do_lower_case", "use another encoder")
        if said.get("max_seq_length"):
            facts["max_length"] = facts["passage_length"] = int(said["max_seq_length"])
    path = folder / "config_sentence_transformers.json"
    if path.is_file():
        said = read_json(path)
        prompts = said.get("prompts") or {}
        default = prompts.get(said.get("default_prompt_name") or "") or ""
        query = prompts.get("query") or default
        passage = prompts.get("passage") or prompts.get("document") or default
        if query or passage:
            facts |= {"query_prefix": query, "passage_prefix": passage}
    return facts


def _pooling(path: Path) -> str:
    """The pooling that a Pooling module's config names: in `pooling_mode`, or by one flag a
    mode."""
    said = read_json(path)
    modes = said.get("pooling_mode")
    if isinstance(modes, str) and modes:
        modes = [modes]
    elif not modes:
        modes = []
        for name, on in said.items():
            if name.startswith("pooling_mode_") and on is True:
                mode = name.removeprefix("pooling_mode_")
                modes.append(mode.removesuffix("_tokens").removesuffix("_token"))
    if len(modes) != 1 or modes[0] not in _POOLINGS or said.get("include_prompt") is False:
        rule = "an encoder pools one way (mean, cls, lasttoken), prefixes included"
        raise InputError(rule, f"{path}: {said}", "use another encoder")
    return _POOLINGS[modes[0]]


def _family(config: Mapping[str, Any], model: str, folder: Path) -> str:
    """The family that a name or the model's class shows; "" when none."""
    for path in (model, str(folder), str(config.get("_name_or_path", ""))):
        name = re.split(r"[/\\]", path.rstrip("/\\"))[-1].lower().replace("_", "-")
        for family in _FAMILIES:
            words = family.replace("-", r"\b.*\b")
            if family != "t5" and re.search(rf"\b{words}\b", name):
                return family
    kind = config.get("model_type")
    if kind == "dpr":
        return "dpr"
    only_encoder = any("EncoderModel" in str(name) for name in config.get("architectures") or ())
    return "t5" if kind in T5 and not only_encoder else ""
