"""Weights & Biases as one more place for the figures of a run (`telemetry.wandb`; the extra `wandb` of setup.cfg).

Promises that a missing package or key is said before anything starts, that one run folder stays one run there, and that
neither code, console output nor environment variables are sent.
"""

from __future__ import annotations

import importlib.util
import netrc
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from omegaconf import OmegaConf

from ssp.base.errors import InputError
from ssp.base.services import SECRET
from ssp.config.schema import Config


def check(mode: str) -> None:
    """InputError when `telemetry.wandb` is `mode` and what it needs is missing: the package; online, a key."""
    if mode == "none":
        return
    if importlib.util.find_spec("wandb") is None:
        rule = f"telemetry.wandb={mode} needs the package wandb"
        raise InputError(rule, "it is not installed", "pip install 'wandb>=0.19,<1', or set telemetry.wandb=none")
    if mode == "online" and not os.environ.get("WANDB_API_KEY") and not _in_netrc():
        found = "no WANDB_API_KEY, and no line for it in .netrc"
        rule = "telemetry.wandb=online needs a key"
        raise InputError(rule, found, "wandb login, or set telemetry.wandb=offline and send it later: wandb sync")


class WandbLog:
    """One run there. `folder`: the run folder; offline, its `wandb/` holds what `wandb sync` sends later."""

    def __init__(self, cfg: Config, folder: Path) -> None:
        import wandb

        place = folder / "wandb"
        place.mkdir(exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ssp"),
            name=folder.name,
            id=_id(place),
            resume="allow",
            dir=str(folder),
            mode=cfg.telemetry.wandb,
            config=public(cfg),
            settings=wandb.Settings(
                console="off", quiet=True, disable_git=True, save_code=False, x_disable_meta=True, x_disable_stats=True
            ),
        )
        # Steps are a figure of their own: those that a resume plays again are told again, which its own counter refuses.
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One row of metrics.jsonl."""
        self._run.log({**{f"{role}/{name}": value for name, value in values.items()}, "step": step})

    def close(self) -> None:
        """End, and wait until everything is on the disk (offline) or sent."""
        self._run.finish()


def public(cfg: Config) -> dict[str, Any]:
    """The configuration as plain data: what is called a key, token, secret or password is starred (names of environment
    variables stay), and addresses lose user, password and query."""
    shown: dict[str, Any] = _public("", OmegaConf.to_container(OmegaConf.structured(cfg)))
    return shown


def _public(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _public(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_public(name, inner) for inner in value]
    if not isinstance(value, str):
        return value
    if value and SECRET.search(name):
        return "***"
    return " ".join(_address(word) if "://" in word else word for word in value.split(" "))


def _address(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _id(place: Path) -> str:
    """The id of this folder's run there: made once, so that a resumed run goes on in it."""
    file = place / "id.txt"
    if not file.exists():
        file.write_text(secrets.token_hex(6), encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _in_netrc() -> bool:
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
