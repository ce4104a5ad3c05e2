"""The weights of a league's members: a model folder each, in `members/` of the run's folder."""

import shutil
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ssp.base.errors import InputError, hold
from ssp.record.manifest import check_files
from ssp.record.runfolder import RunFolder


def check(folder: RunFolder, states: Iterable[Mapping[str, Any]]) -> None:
    """InputError when the weights of a member that one of these states names are gone, or not as
    they were written."""
    named = set()
    for state in states:
        for role, kept in state["kept"].items():
            named |= {(role, version) for version in kept.values()}

    step = "restore that folder, or set league.match=self"
    for role, version in sorted(named):
        path = folder.member(role, version)
        hold(path.is_dir(), "the weights of the league's members are there", f"no {path}", step)
        try:
            check_files(path, whole=True)
        except InputError as error:
            rule = f"the league's members are whole; {error.rule}"
            raise InputError(rule, error.found, step) from error


def sweep(folder: RunFolder) -> None:
    """Remove what a process left that died while it wrote or removed a member."""
    for ending in ("*.tmp-*", ".*.gone"):
        for left in folder.path.glob(f"members/*/{ending}"):
            shutil.rmtree(left, ignore_errors=True)


def remove(folder: RunFolder, role: str, needed: Collection[int]) -> None:
    """Remove the weights of all past versions of `role` but the `needed` ones."""
    for path in (folder.path / "members" / role).glob("v*"):
        version = path.name.removeprefix("v")
        if version.isdecimal() and int(version) not in needed:
            # never half a folder under its name
            trash = path.rename(path.with_name(f".{path.name}.gone"))
            shutil.rmtree(trash, ignore_errors=True)
