"""Where a model or a run lies on this machine."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from ssp.base import cache
from ssp.base.errors import InputError, hold, holding
from ssp.base.files import digest
from ssp.base.published import PUBLISHED

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
"""Files of a model in the Hugging Face layout. The index names the files of weights where there are
several."""
RECORD = "ssp.json"
"""What this project writes of a model that it made (ssp.record.manifest)."""
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
RAY_COPY = "runtime_resources/working_dir_files"
"""Part of the path of the temporary copy that a Ray job works in; it goes away with the job."""


def resolve(path: str, what: str = "run.dir") -> Path:
    """A user's path as an absolute one: relative paths count from $SSP_HOME, else from the working
    folder. InputError inside a Ray job without SSP_HOME: the working folder is a temporary copy
    there. `what` names the key."""
    given = Path(path).expanduser()
    if given.is_absolute():
        return given
    home = os.environ.get("SSP_HOME", "")
    base = Path(home).expanduser().absolute() if home else Path.cwd()
    why = "because the working folder is a temporary copy"
    rule = f"inside a job a relative {what} needs SSP_HOME, {why}"
    step = f"set SSP_HOME to a folder that stays, or give {what} as an absolute path"
    hold(RAY_COPY not in base.as_posix(), rule, path, step)
    return base / given


def existing(text: str) -> Path:
    """The folder of a run or a policy: as typed, below $SSP_HOME, or below runs/ there. InputError
    when there is none."""
    below = [resolve(place, "folder") for place in (text, f"runs/{text}")]
    for place in (Path(text).expanduser(), *below):
        if place.is_dir():
            return place
    what = "a run is a folder that ssp train wrote, or its name below runs/"
    step = f"{what}; a policy a model's, or role@RUN"
    raise InputError("a run or a policy is an existing folder", text, step)


def called(folder: Path) -> str:
    """What a user types for a run, as a word for a shell: its name where `existing` takes that,
    else its path."""
    try:
        by_name = existing(folder.name).samefile(folder)
    except InputError:
        by_name = False
    return shlex.quote(folder.name if by_name else str(folder.absolute()))


def read_json(path: Path, kind: type = dict) -> Any:
    """A JSON file of a model's folder, an object or another `kind`. InputError when it is missing
    or torn."""
    rule = f"a model's folder holds a readable {path.name}"
    step = "give the folder of a whole model"
    with holding((OSError, ValueError, RecursionError), rule, path, step):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, kind):
            raise ValueError(f"a {type(content).__name__}, not a {kind.__name__}")
        return content


def weight_files(folder: Path) -> list[Path]:
    """The files of weights of the model in `folder`: those that its index names, else
    model.safetensors. Other files are no part of the model: left-over shards, copies, adapters.

    InputError when a file is missing, the index is broken, or the weights are there twice."""
    index, single = folder / INDEX, folder / WEIGHTS
    if not index.is_file():
        if not single.is_file():
            _refuse_other_weights(folder)
        return [single]
    named = read_json(index).get("weight_map")
    rule = f"{INDEX} names the file of each tensor in its folder"
    step = "copy or save the model again"
    hold(isinstance(named, dict) and named, rule, f"{index} has no weight_map", step)
    names = sorted(set(map(str, named.values())))
    outside = [name for name in names if Path(name).name != name]
    hold(not outside, rule, f"{index} names {outside[:1]}", step)
    with holding((OSError, ValueError), rule, index, step):  # a name that no file can have
        missing = [name for name in names if not (folder / name).is_file()]
    rule = f"every file that {INDEX} names is there"
    hold(not missing, rule, f"no {missing[:1]} in {folder}", step)

    # transformers would read the one, vLLM the other.
    once = not single.is_file() or WEIGHTS in names
    both = f"{folder} has {WEIGHTS} and an index of others"
    step = f"remove the older of {WEIGHTS} and {INDEX}"
    hold(once, "a model folder holds its weights once", both, step)
    return [folder / name for name in names]


def has_weights(folder: Path) -> bool:
    """Whether a file of weights lies in `folder`, whatever it is called."""
    return any(folder.glob("*.safetensors"))


def tensors(file: Path) -> dict[str, Any]:
    """The arrays in a file of weights, by name. SafetensorError or OSError: it cannot be read."""
    from safetensors.numpy import load_file

    return dict(load_file(file))


def _refuse_other_weights(folder: Path) -> None:
    """InputError that says what lies in a folder without weights that can be read."""
    others = []
    for pattern in ("*.safetensors", "*.bin", "*.pth", "*.gguf"):
        others += [path.name for path in folder.glob(pattern)]
    there = ", ".join(sorted(others)[:3]) or "no weights"
    step = "give the folder of a whole model, saved in safetensors form"
    if (folder / "adapter_config.json").is_file():
        merge = "merge the adapter into its model (merge_and_unload of peft)"
        step = f"{merge}, and give the new folder"
    rule = f"a model folder holds {WEIGHTS} or {INDEX}"
    raise InputError(rule, f"{folder} has {there}", step)


def digests(folder: Path) -> dict[str, str]:
    """File name → SHA-256 of each file that decides what the model in `folder` is: configuration,
    weights and tokenizer. Two folders with equal digests are one model to every engine and learner.
    InputError as `weight_files`."""
    described = [folder / name for name in (CONFIG, *TOKENIZER_FILES)]
    files = [file for file in described if file.is_file()] + weight_files(folder)
    return {file.name: digest(file) for file in files}


def fetched(name: str) -> Path:
    """Where `ssp download` puts `name`, a short one or `organisation/name`."""
    known = PUBLISHED.get(name)
    repo = known.repo if known is not None and known.type == "model" else name
    return cache.root() / "hub" / repo.replace("/", "--")


def find(name: str, key: str) -> Path | None:
    """The folder of a model, by its path or by the name of a downloaded one; None where it is not
    on this machine. `key`: the setting that names it. InputError for a shipped model of an older
    version of this package."""
    given = resolve(name, key)
    if given.is_dir():
        return given
    if not _HUB_NAME.fullmatch(name) and name not in PUBLISHED:
        return None
    if fetched(name).is_dir():
        _check_shipped(name)
        return fetched(name)
    if name in PUBLISHED:
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _check_shipped(name: str) -> None:
    """InputError when the fetched folder of `name` was made from another adapter than this package
    ships, as after an upgrade. Other models have the revision that was asked for."""
    known = PUBLISHED.get(name)
    if known is None or known.type != "adapter":
        return
    made_from = read_json(fetched(name) / RECORD).get("adapter")
    (shipped,) = known.sha256.values()
    value = f"{fetched(name)} is made from {made_from}"
    step = f"remove that folder, and run ssp download {name}"
    hold(made_from == shipped, f"{name} is made from the adapter {shipped}", value, step)


def folder(name: str, key: str) -> Path:
    """As `find`; InputError when it is not here."""
    path = find(name, key)
    if path is None:
        rule = f"{key} is an existing folder, or a model that was downloaded"
        kind = "" if name in PUBLISHED else " --type model"
        raise InputError(rule, name, f"ssp download {name}{kind}, or set {key} to a folder")
    return path
