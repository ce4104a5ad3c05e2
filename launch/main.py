"""The console script `ssp <command> [arguments]`. Promises that only the command that was asked for
is imported."""

import difflib
import importlib
import sys
from collections.abc import Sequence

from launch.cli import run
from ssp import __version__
from ssp.base.errors import InputError
from ssp.base.printable import say

COMMANDS = {
    "train": "play the duel and train both policies",
    "cluster": "train over several nodes",
    "warmup": "teach a policy from traces before it plays",
    "eval": "score a policy on an evaluation set",
    "ask": "ask a policy questions and show its searches",
    "inspect": "show an episode of a run, with its mask",
    "replay": "play an episode again from its record, and compare",
    "compare": "show runs beside each other, and the best checkpoint",
    "bank": "search, show and export the questions of a run",
    "board": "show a run in the browser, or as one HTML file",
    "index": "build a search index from a corpus",
    "serve": "answer searches over HTTP, or serve a judge or a policy",
    "migrate": "turn a launch script of Search-R1, SSP, EMA-PG, ReSearch or SSRL into a config",
    "data": "convert and merge question files",
    "download": "fetch published data sets, indexes and models",
    "plan": "simulate the schedule of a configuration on any number of GPUs",
    "doctor": "check this machine, or a run's ledger",
}
"""Command → what it is for. `launch.<command>` has `main(argv) -> int`."""

ABOUT = """ssp <command> --help lists a command's options; train, cluster, plan, warmup, eval, ask and doctor also take
--config NAME|FILE and key=value settings. Exit codes: 0 done, 1 a failure of ours, 2 bad input, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. `argv` without the program's name (None: the
    process's own)."""
    return run(dispatch, argv)


def dispatch(argv: Sequence[str]) -> int:
    """Run the command that is named first, with the words after it; or print the list of commands,
    or the version. InputError for another command."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        rows = "\n".join(f"  {name:8} {summary}" for name, summary in COMMANDS.items())
        say(f"usage: ssp <command> [options]\n\n{rows}\n\n{ABOUT}")
        return 0
    if argv[0] in ("-V", "--version"):
        say(f"ssp {__version__}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean ssp {near[0]}" if near else "see ssp --help"
        raise InputError(f"a command is one of {', '.join(COMMANDS)}", name, hint)
    return importlib.import_module(f"launch.{name}").main(rest)


if __name__ == "__main__":
    sys.exit(main())
