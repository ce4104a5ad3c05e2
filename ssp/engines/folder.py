"""The one reader of a model's folder: for engines, learners, verifiers and every command."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ssp.base.errors import InputError, hold, holding
from ssp.base.models import CONFIG, INDEX, WEIGHTS, read_json, weight_files
from ssp.base.shape import FAMILIES, Shape, context

ADAPTER, TIE = "adapter_config.json", "tie_word_embeddings"
EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_ROTARY = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
COMPUTED = (*_ROTARY, ".attn.bias", ".attn.masked_bias")
"""Ends of names of what a model computes from its configuration.

Older tools saved it among the weights."""
FLOATS = ("F64", "F32", "F16", "BF16")
NARROW = ("F16", "BF16")
_AGAIN = "save the model again, with its configuration"


@dataclass(frozen=True)
class StoredTensor:
    """Where a parameter lies: its file, and its name, shape and type there, as safetensors has
    them."""

    file: Path
    name: str
    shape: tuple[int, ...]
    kind: str


class ModelFolder:
    """What the model in the folder `path` is.

    Owns the configuration, the files of weights, the parameters, whether the output head is that of
    the embeddings (`tied`), and the length of the context.
    Promises that embedded engine, vLLM and learner compute the same model from it. A head in the
    file counts, unless it repeats the embeddings. Buffers, and files that are no part of the model,
    are not read. `config` says what the weights are. Only headers are read until somebody asks for
    weights.
    Refuses what it cannot reconcile (InputError with the folder and the cause): adapters beside the
    weights, a tensor in two files, and parameters that are missing, unknown, of another shape or no
    plain numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: dict[str, Any] = dict(read_json(path / CONFIG))
        self.files = weight_files(path)
        step = (
            f"merge the adapter (merge_and_unload of peft), or remove {ADAPTER} where that is done"
        )
        alone = not (path / ADAPTER).exists()
        hold(alone, "a model folder holds no adapter", f"{ADAPTER} in {path}", step)
        self.places = self._read_headers()
        """Parameter by its Hugging Face name → where it lies. A tied head is not among them."""
        declared = self.config.get(TIE)
        known = declared is None or isinstance(declared, bool)
        rule = f"{CONFIG} says true or false for {TIE}"
        hold(known, rule, f"{declared!r} in {path}", _AGAIN)
        self.tied = self._tie(declared)
        self._as_declared = self.tied == bool(declared)
        self.config[TIE] = self.tied
        self._check()
        length = self.config.get("max_position_embeddings")
        rule = f"{CONFIG} gives max_position_embeddings as a whole number"
        hold(length is None or type(length) is int, rule, f"{length!r} in {path}", _AGAIN)
        self.context = context(self.config)
        """Tokens that the model was made for; 0: the configuration does not say."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Parameter by its Hugging Face name → its shape."""
        return {name: place.shape for name, place in self.places.items()}

    @property
    def rows(self) -> int:
        """Token ids that the model has embeddings for; 0: not known."""
        at = self.places.get(EMBEDDINGS)
        return at.shape[0] if at is not None else 0

    def weights(self) -> dict[str, np.ndarray]:
        """Parameter by its Hugging Face name → float32 array. InputError for one that is not
        finite."""
        arrays: dict[str, np.ndarray] = {}
        for name, place in self.places.items():
            arrays[name] = self._tensor(place).float().numpy()
            rule, step = "weights must be finite numbers", "use another checkpoint"
            hold(np.isfinite(arrays[name]).all(), rule, f"{name} in {self.path} is not", step)
        return arrays

    @contextmanager
    def plain(self) -> Iterator[Path]:
        """A folder in which vLLM and transformers find this model too, while the context lives.

        It is `path` itself where nothing in it misleads them, else a temporary one, with links to
        the files that count."""
        lying = {file.name for file in self.path.glob("*.safetensors")}
        renamed = [name for name, place in self.places.items() if place.name != name]
        if self._as_declared and not renamed and lying == {file.name for file in self.files}:
            yield self.path
            return
        with TemporaryDirectory(prefix=f"ssp-{self.path.name}-") as made:
            folder = Path(made)
            (folder / CONFIG).write_text(json.dumps(self.config), encoding="utf-8")
            for file in self.files:
                if any(self.places[name].file == file for name in renamed):
                    self._rewrite(file, folder / file.name)
                else:
                    (folder / file.name).symlink_to(file.resolve())
            if self.files[0].name != WEIGHTS:
                placed = {name: place.file.name for name, place in self.places.items()}
                index = json.dumps({"metadata": {}, "weight_map": placed})
                (folder / INDEX).write_text(index, encoding="utf-8")
            yield folder

    def _read_headers(self) -> dict[str, StoredTensor]:
        """What the files hold, without what a model computes itself."""
        from safetensors import SafetensorError, safe_open

        places: dict[str, StoredTensor] = {}
        for file in self.files:
            rule, step = (
                f"{file} must be a readable safetensors file",
                "copy or save the model again",
            )
            torn = holding(SafetensorError, rule, str, step)
            with torn, safe_open(file, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118
                    told = opened.get_slice(name)
                    place = StoredTensor(file, name, tuple(told.get_shape()), told.get_dtype())
                    twice = f"{name} is in {places[name].file} and {file}" if name in places else ""
                    hold(not twice, "a model folder holds each tensor once", twice, step)
                    places[name] = place
        kept = {name: place for name, place in places.items() if not name.endswith(COMPUTED)}
        for name, place in kept.items():
            rule = "weights are plain floating-point numbers"
            step = "give the model without quantisation"
            hold(place.kind in FLOATS, rule, f"{name} in {self.path} is {place.kind}", step)
        return kept

    def _tie(self, declared: bool | None) -> bool:
        """Whether one matrix is embeddings and head.

        It then lies under the name of the embeddings."""
        head, embeddings = self.places.get(HEAD), self.places.get(EMBEDDINGS)
        known = str(self.config.get("model_type")) in FAMILIES
        if declared is None and not known:
            return head is None  # the default of such a family is not known here
        if not declared or head is None or (embeddings is None and not known):
            return bool(declared)
        if embeddings is not None and not self._equal(head, embeddings):
            return False
        self.places.setdefault(EMBEDDINGS, self.places.pop(HEAD))
        return True

    def _equal(self, one: StoredTensor, other: StoredTensor) -> bool:
        return one.shape == other.shape and bool((self._tensor(one) == self._tensor(other)).all())

    def _check(self) -> None:
        """InputError for parameters that do not make the model of the configuration."""
        table = _table(self.config)
        for name, shape in (table or {}).items():
            place = self.places.get(name)
            if place is None:
                rule = "weights must hold every parameter"
                raise InputError(rule, f"{self.path} lacks {name}", _AGAIN)
            rule = f"weights must hold {name} of shape {shape}, as {CONFIG} has it"
            hold(place.shape == shape, rule, f"{place.shape} in {self.path}", _AGAIN)
        unknown = [] if table is None else sorted(self.places.keys() - table.keys())
        rule = f"weights are parameters of the model that {CONFIG} describes"
        hold(not unknown, rule, f"{self.path} holds {unknown[:1]}", _AGAIN)

    def _tensor(self, place: StoredTensor) -> Any:
        from safetensors import safe_open

        with safe_open(place.file, framework="pt") as opened:
            return opened.get_tensor(place.name)

    def _rewrite(self, file: Path, to: Path) -> None:
        """A copy of one file, by the names of the parameters."""
        from safetensors.torch import save_file

        mine = {name: place for name, place in self.places.items() if place.file == file}
        save_file({name: self._tensor(place) for name, place in mine.items()}, to, {"format": "pt"})


def _table(config: dict[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """The parameters of the model that `config` describes; None where they are not known here."""
    family = str(config.get("model_type"))
    more_biases = config.get("mlp_bias") or (family != "qwen2" and config.get("attention_bias"))
    shape = None if family not in FAMILIES or more_biases else Shape.known(config)
    return None if shape is None else shape.tensors()
