"""Model folders and checkpoints: the Hugging Face layout plus `optimizer.pt` and `ssp.json`, where there is a critic
`critic.pt`, and where the KL's reference moves the folder `anchor/`, a policy in the same layout.

Owns what is written and what is refused. Promises that a checkpoint folder appears whole or not at all (written aside,
then renamed), that its model part loads with `AutoModelForCausalLM`, and that a changed, missing or foreign file is
refused by name before anything is taken from the folder (law 6, law 8).
Refuses to choose versions or to prune.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from ssp.errors import InputError, InvariantError

RECORD, OPTIMIZER, WEIGHTS, MODEL_CONFIG = "ssp.json", "optimizer.pt", "model.safetensors", "config.json"
CRITIC, ANCHOR = "critic.pt", "anchor"
SHARD_INDEX = "model.safetensors.index.json"  # stands in for WEIGHTS where a model is cut into several files
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)


def read_record(folder: Path) -> dict[str, Any]:
    """The folder's `ssp.json`, {} when it has none. InputError when it is not a JSON object."""
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise InputError(f"{RECORD} must be JSON", f"{path}: {error}", "use another checkpoint") from error
    if not isinstance(record, dict):
        raise InputError(f"{RECORD} must be a JSON object", path, "use another checkpoint")
    return record


def protocol_of(folder: Path, declared: str = "") -> str:
    """The tag protocol that the folder's model speaks: from its `ssp.json`, else `declared`.

    InputError when neither says so, or when the two differ.
    """
    stored = str(read_record(folder).get("protocol", ""))
    if not stored and not declared:
        raise InputError(
            "a model folder must name its tag protocol", f"{folder} has no protocol in {RECORD}", "set protocol=<id>"
        )
    if stored and declared and stored != declared:
        raise InputError(
            f"the checkpoint must be of protocol {declared}",
            f"{folder} is of protocol {stored}",
            f"set protocol={stored} or use another checkpoint",
        )
    return stored or declared


def load_model(folder: Path) -> PreTrainedModel:
    """The folder's model in float32, eval mode (no dropout). InputError naming the file that is missing or broken."""
    require(folder / MODEL_CONFIG)
    if not (folder / SHARD_INDEX).is_file():
        require(folder / WEIGHTS)
    transformers_logging.disable_progress_bar()
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except SafetensorError as error:
        raise InputError(
            "weights must be readable", f"{folder / WEIGHTS}: {error}", "use another checkpoint"
        ) from error
    except (ValueError, OSError) as error:
        raise InputError("a model folder must load", f"{folder}: {error}", "use another checkpoint") from error
    model, info = loaded
    # transformers fills what the file lacks with random numbers and only warns.
    absent = sorted(info["missing_keys"]) or sorted(str(key) for key in info["mismatched_keys"])
    if absent:
        raise InputError("weights must hold every parameter", f"{folder} lacks {absent[0]}", "use another checkpoint")
    return model.eval()


def require(path: Path) -> None:
    """InputError when `path` is not a file."""
    if not path.is_file():
        raise InputError("a checkpoint must be complete", f"no file {path}", "use another checkpoint")


@dataclass(frozen=True)
class Stored:
    """What a checkpoint holds beside `record` (its `ssp.json`): `critic` and `anchor` where the learner has them."""

    model: PreTrainedModel
    optimizer: dict[str, Any]
    critic: dict[str, Any] | None = None
    anchor: PreTrainedModel | None = None


def write(folder: Path, stored: Stored, record: Mapping[str, Any], source: Path) -> None:
    """Write a checkpoint to `folder`, aside first, then renamed; tokenizer files are copied from `source`.

    `ssp.json` is `record` plus the SHA-256 of every other file. InvariantError when `folder` exists:
    versions are never used twice. On any failure the unfinished folder is removed and the error goes on.
    """
    if folder.exists():
        raise InvariantError(f"a checkpoint folder is written once, but {folder} exists")
    aside = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        _write_policy(aside, stored.model, source)
        if stored.anchor is not None:
            _write_policy(aside / ANCHOR, stored.anchor, source)
            _write_record(aside / ANCHOR, record)
        torch.save(stored.optimizer, aside / OPTIMIZER)
        if stored.critic is not None:
            torch.save(stored.critic, aside / CRITIC)
        digests = {str(p.relative_to(aside)): _sha256(p) for p in sorted(aside.rglob("*")) if p.is_file()}
        _write_record(aside, {**record, "sha256": digests})
        os.rename(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def read(folder: Path, protocol: str, critic: bool = False, anchor: bool = False) -> tuple[Stored, dict[str, Any]]:
    """A checkpoint of `protocol` and its record, with what is asked for. Checks everything before it returns.

    InputError naming the file: missing, not as written (SHA-256), unreadable, or of another protocol.
    """
    require(folder / RECORD)
    record = read_record(folder)
    protocol_of(folder)  # a checkpoint says it itself
    protocol_of(folder, protocol)
    for name in (MODEL_CONFIG, OPTIMIZER, *([CRITIC] if critic else []), *([f"{ANCHOR}/{RECORD}"] if anchor else [])):
        require(folder / name)
    for key, kind in (("sha256", dict), ("step", int), ("algorithm", dict)):
        if not isinstance(record.get(key), kind):
            raise InputError(f"{RECORD} must hold {key}", f"{folder / RECORD} does not", "use another checkpoint")
    digests: dict[str, str] = record["sha256"]
    for name, digest in digests.items():
        require(folder / name)
        if _sha256(folder / name) != digest:
            raise InputError(
                "a checkpoint must be as it was written", f"{folder / name} has changed", "use another one"
            )
    stored = Stored(
        load_model(folder),
        torch.load(folder / OPTIMIZER, map_location="cpu", weights_only=True),
        torch.load(folder / CRITIC, map_location="cpu", weights_only=True) if critic else None,
        load_model(folder / ANCHOR) if anchor else None,
    )
    return stored, record


def _write_policy(folder: Path, model: PreTrainedModel, source: Path) -> None:
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _write_record(folder: Path, record: Mapping[str, Any]) -> None:
    (folder / RECORD).write_text(json.dumps(dict(record), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
