"""`ssp migrate`: a launch script of a reference system, or its overrides, as a config of ours."""

from collections.abc import Sequence

from launch.cli import run
from ssp.base.extras import extra


def main(argv: Sequence[str]) -> int:
    """Run the command, which is the extra `migration`. InputError where that is not installed, and
    as its own."""
    return int(extra("migration", "ssp migrate", "command").main(argv))


if __name__ == "__main__":
    raise SystemExit(run(main))
