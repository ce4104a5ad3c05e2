"""What `--policy` names: a policy's folder, a run, one role of a run, or a server; and the
configuration it comes with."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from launch.cli import DEFAULT_CONFIG, Parser, load
from ssp.base.episode import SOLVER
from ssp.base.errors import InputError, hold
from ssp.base.models import existing
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder


def add_flags(parser: Parser) -> None:
    """`--policy` and what belongs to it."""
    said = (
        "a policy's folder, a run (who answers, or role@RUN), an OpenAI-compatible server; default:"
        " the solver's start"
    )
    parser.add_argument("--policy", default="", metavar="DIR|RUN|role@RUN|URL", help=said)
    trust_flag(parser)
    parser.add_argument("--model", default="", help="of a server: the model's name there")
    parser.add_argument(
        "--tokenizer", default="", metavar="DIR", help="of a server: the model's tokenizer's folder"
    )


def trust_flag(parser: Parser) -> None:
    """`--trust-code`, without which a run's own configuration is only read."""
    said = "run the code that the run's own config.yaml names, and send keys to the addresses in it"
    parser.add_argument("--trust-code", action="store_true", help=said)


ALONE = ("placement.layout=separate", "placement.engine_gpus=0", "placement.learner_gpus=0")
"""No learner takes turns with a policy that is asked; its engine takes the GPU that torch sees."""


@dataclass(frozen=True)
class NamedPolicy:
    """What was typed: the `path` of a policy or a run (None: the config's own start model) and the
    run's `role` (by default who answers); or a server's `url`, the `model` there, and the `path` of
    its tokenizer. `trusted`: the run's own config.yaml may name code that runs, and where keys
    go."""

    path: Path | None = None
    role: str = ""
    url: str = ""
    model: str = ""
    trusted: bool = False

    @property
    def run(self) -> RunFolder | None:
        """The run, when the path is one."""
        run = RunFolder(self.path) if self.path is not None and not self.url else None
        return run if run is not None and run.config.is_file() else None

    def config(self, typed: str | None, overrides: list[str]) -> Config:
        """The checked configuration: the one typed, else the run's own, else the default."""
        settings = [*overrides, *ALONE]
        if self.url:
            url = json.dumps(f"{self.url}#{self.model}")
            settings += [f'{SOLVER}.engine.kind="endpoint"', f"{SOLVER}.engine.url={url}"]
        if typed or self.run is None:
            return load(typed or DEFAULT_CONFIG, settings)
        from ssp.record.reader import check_code  # costs what --help does without

        cfg = load(str(self.run.config), settings, self.trusted)
        check_code(self.run, cfg, [setting.partition("=")[0].strip() for setting in overrides])
        return cfg

    def folder(self, cfg: Config) -> Path:
        """The policy's folder, or the tokenizer's folder of a server. InputError for a policy that
        speaks another protocol than the config's."""
        if self.url and self.path is not None:
            return self.path
        run = self.run
        if run is not None and not run.has_state:
            rule = "a run that is looked at has a checkpoint"
            raise InputError(rule, run.path, "let it reach one first")
        from ssp.selfplay.workers import build  # costs what --help does without

        return build.policy_dir(cfg, self.path, self.role)

    def shown(self, folder: Path) -> str:
        """How the policy is called in what is printed."""
        return f"{self.model} at {self.url}" if self.url else str(folder)


def parse(args: argparse.Namespace) -> NamedPolicy:
    """The policy that `--policy` names. Runs are also found by name, below runs/. InputError for
    what names no policy."""
    text = str(args.policy)
    trusted = bool(args.trust_code)
    server = text.startswith(("http://", "https://"))
    rule = "a server's policy, and it alone, comes with --model and --tokenizer"
    both = {args.model != "", args.tokenizer != ""}
    hold(both == {server}, rule, f"--policy {text}", "give all three, or none of the two")
    if server:
        return NamedPolicy(existing(args.tokenizer), url=text, model=args.model, trusted=trusted)
    role, at, rest = text.partition("@")
    if not text:
        return NamedPolicy(trusted=trusted)
    try:
        return NamedPolicy(existing(text), trusted=trusted)
    except InputError:
        if not at:
            raise
    path = existing(rest)
    is_run = RunFolder(path).config.is_file()
    hold(is_run, f"{role}@ goes before a run", rest, "give a folder that ssp train wrote")
    return NamedPolicy(path, role, trusted=trusted)
