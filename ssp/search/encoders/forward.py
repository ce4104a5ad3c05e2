"""A transformer's forward pass over texts of many lengths. All weights are the folder's; a model's
own code is refused."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from ssp.base import products
from ssp.base.errors import InputError, hold, holding
from ssp.base.models import read_json
from ssp.search.encoders.families import position_limit

_ODD = (KeyError, TypeError, AttributeError)
_UNREADABLE = (OSError, ValueError, RuntimeError, SafetensorError, *_ODD)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_CPU_TOKENS, _GPU_TOKENS = 512, 32_768
"""Tokens of one batch: on a CPU what keeps the activations near the core, on a GPU what fills
it."""
_FULL_SHARE = 8
"""A batch that holds this share (1 in 8) of its tokens is closed where shorter texts begin: padding
costs more."""
_CHARS_A_TOKEN = 64
"""Text beyond this many characters a token of the limit is not looked at: a bound on what one text
may cost."""


@dataclass(frozen=True)
class TextBatch:
    """Texts `rows` (places in the caller's list) of nearly one length. `ids [n, length]`; `mask`
    None without padding."""

    rows: list[int]
    ids: torch.Tensor
    mask: torch.Tensor | None
    types: torch.Tensor | None


class Forward:
    """The model of class `kind` in `folder`, on one device. `optional`: parts of names of weights
    that it may lack, since they are not used. `limit`: most tokens that it reads at once.
    InputError for a folder or device that cannot be used."""

    def __init__(
        self, folder: Path, kind: Any, dtype: str, device: str, optional: tuple[str, ...] = ()
    ) -> None:
        rule = "a device is cpu, cuda or cuda:N"
        with holding(RuntimeError, rule, lambda _: device, "set another device"):
            self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            rule = "device cuda needs a GPU that torch sees"
            raise InputError(rule, device, "use cpu, or torch's CUDA build")
        config = read_json(folder / "config.json")
        self.model = _load(folder, config, kind, DTYPES[dtype], optional)
        self.limit = position_limit(folder, config)
        products.infer(self.model.to(self.device))
        self._slow = _tokenizer(folder, config)
        self._typed = int(config.get("type_vocab_size") or 0) > 1
        self._pad = self._slow.pad_token_id or 0

    def tokenizer(self, length: int) -> Any:
        """A Rust tokenizer of its own, which cuts at `length` tokens. InputError for more than the
        model reads."""
        rule = f"a text's length is 3 to {self.limit} tokens for this model"
        hold(2 < length <= self.limit, rule, length, "set a shorter one")
        rust = copy.deepcopy(self._slow.backend_tokenizer)
        rust.no_padding()
        rust.enable_truncation(length, direction=self._slow.truncation_side)
        return rust

    def batches(self, encodings: Sequence[Any], most: int = 1 << 20) -> Iterator[TextBatch]:
        """`encodings` sorted by length, the longest first, in batches of at most `most`."""
        budget = _CPU_TOKENS if self.device.type == "cpu" else _GPU_TOKENS
        lengths = [max(1, len(encoding.ids)) for encoding in encodings]
        rows: list[int] = []
        for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            if rows:
                longest = lengths[rows[0]]
                full = (len(rows) + 1) * longest > budget or len(rows) == most
                large = len(rows) * longest >= budget // _FULL_SHARE
                if full or (large and lengths[row] < longest):
                    yield self._batch(encodings, rows, lengths)
                    rows = []
            rows.append(row)
        if rows:
            yield self._batch(encodings, rows, lengths)

    def __call__(self, batch: TextBatch, **more: Any) -> Any:
        """The model's outputs."""
        if batch.types is not None:
            more["token_type_ids"] = batch.types
        return self.model(input_ids=batch.ids, attention_mask=batch.mask, **more)

    def _batch(self, encodings: Sequence[Any], rows: list[int], lengths: list[int]) -> TextBatch:
        """The batch of `rows`, which are sorted by length, the longest first."""
        longest = lengths[rows[0]]
        padded = lengths[rows[-1]] < longest

        def tensor(values: list[list[int]], fill: int) -> torch.Tensor:
            if padded or not all(values):  # an empty text counts as one token
                values = [line + [fill] * (longest - len(line)) for line in values]
            return torch.tensor(values, device=self.device)

        texts = [encodings[row] for row in rows]
        ids = tensor([text.ids for text in texts], self._pad)
        mask = tensor([[1] * lengths[row] for row in rows], 0) if padded else None
        types = tensor([text.type_ids for text in texts], 0) if self._typed else None
        return TextBatch(rows, ids, mask, types)


def clean(text: str, length: int) -> str:
    """`text` as a tokenizer can take it: no half of a surrogate pair, no longer than `length`
    tokens can need."""
    text = text[: length * _CHARS_A_TOKEN]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _load(
    folder: Path, config: dict[str, Any], kind: Any, dtype: torch.dtype, optional: tuple[str, ...]
) -> Any:
    """The model in `folder`, for inference. InputError for one with code of its own, for files that
    do not load, and for missing weights."""
    classes = config.get("architectures") or []
    if "auto_map" in config and not any(hasattr(transformers, str(name)) for name in classes):
        own = f"{folder} brings its own ({classes})"
        raise InputError("a model runs on the library's own code", own, "use another model")
    transformers.logging.disable_progress_bar()
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # what it warns of, missing weights, is our error
    try:
        model, info = kind.from_pretrained(
            folder,
            output_loading_info=True,
            trust_remote_code=False,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
        )
    except _UNREADABLE as error:
        rule = "a model's folder holds its config and safetensors"
        raise InputError(rule, _told(folder, error), "copy or save it again") from error
    finally:
        transformers.logging.set_verbosity(verbosity)
    missing = sorted(
        name for name in info["missing_keys"] if not any(part in name for part in optional)
    )
    missing += map(str, info["mismatched_keys"])
    if missing:
        rule = f"a folder holds all weights of {type(model).__name__}"
        step = "use a model of that kind, or another pooling"
        raise InputError(rule, f"{folder} lacks {', '.join(missing[:5])}", step)
    model.config.use_cache = False
    return model.eval().requires_grad_(False)


def _told(folder: Path, error: Exception) -> str:
    return f"{folder}: {type(error).__name__} {str(error).strip().splitlines()[:1]}"


def _tokenizer(folder: Path, config: dict[str, Any]) -> Any:
    """The folder's tokenizer. InputError for none that has a Rust form, and for ids beyond the
    model's vocabulary."""
    rule = "a model's folder holds a tokenizer that has a Rust form"
    with holding(_UNREADABLE, rule, partial(_told, folder), "copy it again"):
        if not any(any(folder.glob(form)) for form in ("tokenizer.json", "vocab.*", "*.model")):
            raise OSError("no tokenizer.json, vocab.txt or *.model")
        # AutoTokenizer rebuilds what tokenizer.json says after the model's type: only for folders
        # without that file.
        exact = (folder / "tokenizer.json").is_file()
        kind = transformers.PreTrainedTokenizerFast if exact else transformers.AutoTokenizer
        tokenizer: Any = kind.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        words = 1 + max(tokenizer.backend_tokenizer.get_vocab().values(), default=0)
    most = config.get("vocab_size", words)
    rule = "a tokenizer's ids lie within the model's vocabulary"
    hold(words <= most, rule, f"{folder}: {words} > {most}", "copy the tokenizer of this model")
    return tokenizer
