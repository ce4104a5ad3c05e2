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
"""Files of a model in the Hugging Face layout.

The index names the files of weights where these are cut into several."""
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
    if RAY_COPY in base.as_posix():
        rule = (
            f"inside a job a relative {what} needs SSP_HOME, because the working folder is a"
            " temporary copy"
        )
        raise InputError(
            rule, path, f"set SSP_HOME to a folder that stays, or give {what} as an absolute path"
        )
    return base / given


def existing(text: str) -> Path:
    """The folder of a run or a policy: as typed, below $SSP_HOME, or below runs/ there. InputError
    when there is none."""
    places = [
        Path(text).expanduser(),
        *(resolve(place, "folder") for place in (text, f"runs/{text}")),
    ]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        next_step = (
            "a run is a folder that ssp train wrote, or its name below runs/; a policy a model's,"
            " or role@RUN"
        )
        raise InputError("a run or a policy is an existing folder", text, next_step)
    return found


def called(folder: Path) -> str:
    """What a user types for a run, as a word for a shell: its name where that finds it, else its
    path."""
    try:
        by_name = existing(folder.name).samefile(folder)
    except InputError:
        by_name = False
    return shlex.quote(folder.name if by_name else str(folder.absolute()))


def read_json(path: Path, kind: type = dict) -> Any:
    """A JSON file of a model's folder, an object or another `kind`. InputError when it is missing
    or torn."""
    rule, step = (
        f"a model's folder holds a readable {path.name}",
        "give the folder of a whole model",
    )
    with holding((OSError, ValueError, RecursionError), rule, path, step):
        read = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(read, kind):
            raise ValueError(f"a {type(read).__name__}, not a {kind.__name__}")
        return read


def weight_files(folder: Path) -> list[Path]:
    """The files of weights of the model in `folder`: those that its index names, else
    model.safetensors.

    Other files are no part of the model, whatever they are called: left-over shards, copies,
    adapters.
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
    there, step = f"{WEIGHTS} and an index of others", f"remove the older of {WEIGHTS} and {INDEX}"
    hold(once, "a model folder holds its weights once", f"{folder} has {there}", step)
    return [folder / name for name in names]


def _refuse_other_weights(folder: Path) -> None:
    """InputError that says what lies in a folder without weights that can be read."""
    rule = f"a model folder holds {WEIGHTS} or {INDEX}"
    others = ("*.safetensors", "*.bin", "*.pth", "*.gguf")
    there = sorted(path.name for pattern in others for path in folder.glob(pattern))
    step = "give the folder of a whole model, saved in safetensors form"
    if (folder / "adapter_config.json").is_file():
        step = (
            "merge the adapter into its model (merge_and_unload of peft), and give the new folder"
        )
    raise InputError(rule, f"{folder} has {', '.join(there[:3]) or 'no weights'}", step)


def digests(folder: Path) -> dict[str, str]:
    """File name → SHA-256 of each file that decides what the model in `folder` is.

    These are its configuration, weights and tokenizer. Two folders with equal digests are one model
    to every engine and learner. InputError as `weight_files`."""
    files = [folder / name for name in (CONFIG, *TOKENIZER_FILES)]
    there = [file for file in files if file.is_file()]
    return {file.name: digest(file) for file in [*there, *weight_files(folder)]}


def fetched(name: str) -> Path:
    """Where `ssp download` puts `name`, a short one or `organisation/name`."""
    known = PUBLISHED.get(name)
    name = known.repo if known is not None and known.type == "model" else name
    return cache.root() / "hub" / name.replace("/", "--")


def find(name: str, key: str) -> Path | None:
    """The folder of the model that the setting `key` names, by its path or the name of a downloaded
    one; None: none here."""
    given = resolve(name, key)
    if given.is_dir():
        return given
    if not _HUB_NAME.fullmatch(name) and name not in PUBLISHED:
        return None
    if fetched(name).is_dir():
        return fetched(name)
    if name in PUBLISHED:
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def folder(name: str, key: str) -> Path:
    """As `find`; InputError when it is not here."""
    found = find(name, key)
    if found is None:
        rule = f"{key} is an existing folder, or a model that was downloaded"
        command = f"ssp download {name}" + (" --type model" if name not in PUBLISHED else "")
        raise InputError(rule, name, f"{command}, or set {key} to a folder")
    return found
