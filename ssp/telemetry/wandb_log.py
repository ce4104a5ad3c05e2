"""Weights & Biases as one more place for the figures of a run (`telemetry.wandb`; the extra `wandb`
of setup.cfg)."""

import importlib.util
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ssp.base.errors import hold
from ssp.base.printable import masked
from ssp.config.load import dotted
from ssp.config.schema import Config

Sample = Mapping[str, str | float | None]
"""A question of a round: column → what is shown."""


def check(mode: str) -> None:
    """InputError when `telemetry.wandb` is `mode`, and the package, or online a key, is missing."""
    installed = mode == "none" or importlib.util.find_spec("wandb") is not None
    rule = f"telemetry.wandb={mode} needs the package wandb"
    step = "pip install 'wandb>=0.19,<1', or set telemetry.wandb=none"
    hold(installed, rule, "it is not installed", step)
    login = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    has_key = mode != "online" or os.environ.get("WANDB_API_KEY") or login.exists()
    step = "wandb login, or set telemetry.wandb=offline and send it later: wandb sync"
    absent = f"no WANDB_API_KEY, and no {login}"
    hold(has_key, "telemetry.wandb=online needs a key", absent, step)


def tag(role: str, name: str) -> str:
    """A figure's name beside those of other roles, without the role twice."""
    return name if name.startswith(f"{role}/") else f"{role}/{name}"


def shown(value: object) -> object:
    """A setting as it may leave this machine: of an address without user, password and query, and
    no value of a variable that is named as a secret is."""
    if not isinstance(value, str):
        return value if isinstance(value, bool | int | float | None) else shown(str(value))
    words = []
    for word in masked(value).split(" "):
        address = urlsplit(word) if "://" in word else None
        if address is not None:
            word = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
        words.append(word)
    return " ".join(words)


class WandbLog:
    """One run at Weights & Biases. `folder`: the run folder; offline, its `wandb/` holds what `wandb sync` sends
    later. Making it asks nobody: `open` does."""

    def __init__(self, cfg: Config, folder: Path) -> None:
        self._mode = cfg.telemetry.wandb
        self._config = {key: shown(value) for key, value in dotted(cfg).items()}
        self._folder = folder

    def open(self) -> None:
        """Begin the run, or go on in it."""
        import wandb

        folder = self._folder
        mark = folder / "wandb" / "id.txt"
        if not mark.exists():
            mark.parent.mkdir(exist_ok=True)
            mark.write_text(secrets.token_hex(6), encoding="utf-8")
        settings = wandb.Settings(
            console="off",
            quiet=True,
            disable_git=True,
            save_code=False,
            x_disable_meta=True,  # the machine's name and the command line; its load is sent
        )
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ssp"),
            name=folder.name,
            dir=str(folder),
            id=mark.read_text(encoding="utf-8"),
            resume="allow",
            config=self._config,
            mode=self._mode,
            settings=settings,
        )
        # Steps are a figure of their own: those that a resume plays again are told again, which its
        # own counter refuses.
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One row of metrics.jsonl."""
        row = {tag(role, name): value for name, value in values.items()}
        self._run.log({**row, "step": step})

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        """A table of a round's questions."""
        import wandb

        if rows:
            columns = list(rows[0])
            table = wandb.Table(
                columns=columns, data=[[row[key] for key in columns] for row in rows]
            )
            self._run.log({"samples": table, "step": step})

    def close(self) -> None:
        """End, and wait until everything is on the disk (offline) or sent."""
        self._run.finish()
