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
"""How names end of what a model computes from its configuration: older tools saved it among the
weights."""
UNSCALED = {
    "logit_scale": 1,
    "logits_scaling": 1,
    "lm_head_multiplier": 1,
    "final_logit_softcapping": None,
    "output_logit_soft_cap": None,
}
"""What a configuration may say of logits → how it says that they stay as they are."""
PLAIN_LOGITS = "a learner's model has logits that are its output embedding of its last hidden state"
FLOATS = ("F64", "F32", "F16", "BF16")
NARROW = ("F16", "BF16")
OTHER_FAMILY = "use a model of a family that docs/own.md names"
_AGAIN = "save the model again, with its configuration"


@dataclass(frozen=True)
class StoredTensor:
    """Where a parameter lies: its file, and its name, shape and type in that safetensors file."""

    file: Path
    name: str
    shape: tuple[int, ...]
    kind: str


class ModelFolder:
    """The model in the folder `path`.

    Owns the configuration, the files of weights, the parameters, whether the output head is that of
    the embeddings (`tied`), and the length of the context.
    Promises that embedded engine, vLLM and learner compute the same model from it. A head in the
    file counts, unless it repeats the embeddings. Buffers, and files that are no part of the model,
    are not read. `config` agrees with the weights. Only headers are read until somebody asks for
    weights.
    Refuses what it cannot reconcile (InputError with the folder and the cause): adapters beside the
    weights, a tensor in two files, and parameters that are missing, unknown, of another shape or no
    plain numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: dict[str, Any] = dict(read_json(path / CONFIG))
        self.files = weight_files(path)
        if (path / ADAPTER).exists():
            merge = "merge the adapter (merge_and_unload of peft)"
            step = f"{merge}, or remove {ADAPTER} where that is done"
            raise InputError("a model folder holds no adapter", f"{ADAPTER} in {path}", step)
        self.places = self._read_headers()
        """Parameter by its Hugging Face name → where it lies. A tied head is not among them."""
        declared = self.config.get(TIE)
        rule = f"{CONFIG} says true or false for {TIE}"
        known = declared is None or isinstance(declared, bool)
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
        return self.places[EMBEDDINGS].shape[0] if EMBEDDINGS in self.places else 0

    def weights(self) -> dict[str, np.ndarray]:
        """Parameter by its Hugging Face name → float32 array. InputError for one that is not
        finite."""
        arrays: dict[str, np.ndarray] = {}
        for name, place in self.places.items():
            arrays[name] = _tensor(place).float().numpy()
            if not np.isfinite(arrays[name]).all():
                rule = "weights must be finite numbers"
                raise InputError(rule, f"{name} in {self.path} is not", "use another checkpoint")
        return arrays

    def check_logits(self) -> None:
        """InputError where the configuration scales or caps logits, which a learner would leave out
        without a word."""
        for name, plain in UNSCALED.items():
            value = self.config.get(name, plain)
            family = f"{name}={value} in {self.path} of the family {self.config.get('model_type')}"
            hold(value in (None, plain), PLAIN_LOGITS, family, OTHER_FAMILY)

    @contextmanager
    def plain(self) -> Iterator[Path]:
        """A folder in which vLLM and transformers read this model too, while the context lives.

        It is `path` itself where nothing in it misleads them, else a temporary one, with links to
        the files that count."""
        from safetensors.torch import save_file

        lying = {file.name for file in self.path.glob("*.safetensors")}
        renamed = {place.file for name, place in self.places.items() if place.name != name}
        if self._as_declared and not renamed and lying == {file.name for file in self.files}:
            yield self.path
            return
        with TemporaryDirectory(prefix=f"ssp-{self.path.name}-") as temporary:
            folder = Path(temporary)
            (folder / CONFIG).write_text(json.dumps(self.config), encoding="utf-8")
            for file in self.files:
                if file in renamed:
                    mine = {name: at for name, at in self.places.items() if at.file == file}
                    tensors = {name: _tensor(place) for name, place in mine.items()}
                    save_file(tensors, folder / file.name, {"format": "pt"})
                else:
                    (folder / file.name).symlink_to(file.resolve())
            if self.files[0].name != WEIGHTS:
                files = {name: place.file.name for name, place in self.places.items()}
                index = json.dumps({"metadata": {}, "weight_map": files})
                (folder / INDEX).write_text(index, encoding="utf-8")
            yield folder

    def _read_headers(self) -> dict[str, StoredTensor]:
        """What the files hold, without what a model computes itself."""
        from safetensors import SafetensorError, safe_open

        places: dict[str, StoredTensor] = {}
        step = "copy or save the model again"
        for file in self.files:
            rule = f"{file} must be a readable safetensors file"
            torn = holding(SafetensorError, rule, str, step)
            with torn, safe_open(file, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118
                    if name in places:
                        both = f"{name} is in {places[name].file} and {file}"
                        raise InputError("a model folder holds each tensor once", both, step)
                    header = opened.get_slice(name)
                    shape = tuple(header.get_shape())
                    places[name] = StoredTensor(file, name, shape, header.get_dtype())
        kept = {name: place for name, place in places.items() if not name.endswith(COMPUTED)}
        for name, place in kept.items():
            rule = "weights are plain floating-point numbers"
            step = "give the model without quantisation"
            hold(place.kind in FLOATS, rule, f"{name} in {self.path} is {place.kind}", step)
        return kept

    def _tie(self, declared: bool | None) -> bool:
        """Whether one matrix is embeddings and head. It then lies under the name of the
        embeddings."""
        head = self.places.get(HEAD)
        embeddings = self.places.get(EMBEDDINGS)
        known = str(self.config.get("model_type")) in FAMILIES
        if declared is None and not known:
            return head is None  # the default of such a family is not known here
        if not declared or head is None or (embeddings is None and not known):
            return bool(declared)
        if embeddings is not None:
            same = head.shape == embeddings.shape
            if not (same and bool((_tensor(head) == _tensor(embeddings)).all())):
                return False
        self.places.setdefault(EMBEDDINGS, self.places.pop(HEAD))
        return True

    def _check(self) -> None:
        """InputError for parameters that do not make the model of the configuration, where it is
        known here which these are."""
        config = self.config
        model = Shape.known(config)
        if model is None:
            return
        always_biased = FAMILIES[config["model_type"]].bias
        if config.get("mlp_bias") or (config.get("attention_bias") and not always_biased):
            return
        table = model.tensors()
        for name, shape in table.items():
            if name not in self.places:
                rule = "weights must hold every parameter"
                raise InputError(rule, f"{self.path} lacks {name}", _AGAIN)
            stored = self.places[name].shape
            rule = f"weights must hold {name} of shape {shape}, as {CONFIG} has it"
            hold(stored == shape, rule, f"{stored} in {self.path}", _AGAIN)
        unknown = sorted(self.places.keys() - table.keys())
        rule = f"weights are parameters of the model that {CONFIG} describes"
        hold(not unknown, rule, f"{self.path} holds {unknown[:1]}", _AGAIN)


def _tensor(place: StoredTensor) -> Any:
    from safetensors import safe_open

    with safe_open(place.file, framework="pt") as opened:
        return opened.get_tensor(place.name)
