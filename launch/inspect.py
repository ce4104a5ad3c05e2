"""`ssp inspect RUN:EPISODE`: an episode of a run, segment by segment, with its mask; and whether its reward comes out again.

Promises to change nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from launch import policy
from launch.cli import Parser
from launch.records import transcript
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.config.schema import Config
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal

if TYPE_CHECKING:
    from ssp.views.replay.record import Found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when --check finds another parse or reward than the one on record."""
    parser = Parser("inspect", "Show an episode of a run, with its mask.")
    parser.add_argument("episode", metavar="RUN:EPISODE|FILE.parquet:ROW", help="an episode's id, or its row of a file")
    parser.add_argument(
        "--tokens", action="store_true", help="list every token: id, text, kind, mask, log-prob, version"
    )
    parser.add_argument("--check", action="store_true", help="parse and price it again, and compare with the record")
    policy.trust_flag(parser)
    parser.add_argument("--tokenizer", default="", metavar="DIR", help="default: that of the run's checkpoint")
    args = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    # Here, because --help needs none of it.
    from launch.records import shown
    from ssp.views.replay import priced

    found = find(args.episode)
    from ssp.selfplay.workers import build  # costs what --help does without

    cfg = RunReader(found.run, args.trust_code).cfg
    folder = Path(args.tokenizer) if args.tokenizer else _newest(found.run, cfg, found.episode.role)
    tokenizer = build.tokenizer(folder)
    console = Terminal(soft_wrap=True)
    console.print(shown.header(found))
    if args.tokens:
        for line in shown.token_lines(found.episode.log, tokenizer):
            console.print(line)
    else:
        for line in shown.segments(found.episode, cfg, tokenizer):
            console.print(line)
    console.print(transcript.outcome(found.episode))
    if not args.check:
        return 0
    results = priced.check(found.episode, cfg, tokenizer, found.entry, found.game, found.update)
    for result in results:
        console.print(Text(str(result), style="green" if result.same else "bold red"))
    return 0 if all(result.same for result in results) else 1


def find(text: str) -> Found:
    """The episode that `text` names. InputError when there is none."""
    from ssp.views.replay import record

    before, colon, after = text.rpartition(":") if text.rpartition(":")[0].endswith(".parquet") else text.partition(":")
    if not colon or not after:
        step = f"`ssp bank {before or 'RUN'} --episodes` lists the ids"
        raise InputError("an episode is RUN:EPISODE or FILE.parquet:ROW", text, step)
    if before.endswith(".parquet"):
        path = Path(before).absolute()
        return record.at(RunFolder(path.parent.parent), path, after)
    return record.named(RunFolder(existing(before)), after)


def _newest(run: RunFolder, cfg: Config, role: str) -> Path:
    """The folder of the role's newest checkpoint, else the model that it starts from."""
    folders = (run.read_state() or {"folders": {}})["folders"]
    from ssp.selfplay.workers import build

    return run.absolute(folders[role]) if role in folders else build.model_dir(cfg, role)


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
