"""`ssp plan`: what a configuration would do on so many GPUs, simulated with the program's own
scheduling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.cli import Parser, load, parse, run, wholes
from ssp.base.printable import say

if TYPE_CHECKING:  # what --help does without
    from ssp.config.schema import Config

MOST = 4096
"""GPUs of one plan."""


def main(argv: Sequence[str]) -> int:
    """Print the plan. Returns the exit code."""
    summary = "Simulate the schedule of a configuration, on any number of GPUs."
    parsed = parse(argv, "plan", summary, flags)
    cfg = parsed.load()
    # Here, because --help needs none of it.
    from ssp.capacity.plan.costs import Costs
    from ssp.capacity.plan.report import describe

    def again(typed: list[str]) -> Config:
        return load(parsed.config, [*parsed.overrides, *typed])

    say(describe(cfg, parsed.flags.gpus, Costs.typed(parsed.flags.assume), again))
    return 0


def flags(parser: Parser) -> None:
    """The options of `ssp plan`."""
    said = "GPUs to plan for (default: what placement.* says)"
    parser.add_argument("--gpus", type=wholes(MOST), default=[], metavar="1,8,64", help=said)
    said = "an input that nobody measured; may be repeated"
    parser.add_argument("--assume", action="append", default=[], metavar="KEY=VALUE", help=said)


if __name__ == "__main__":
    raise SystemExit(run(main))
