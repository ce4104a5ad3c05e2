"""Entry points: one command a file, plus the set-up scripts.

Owns how things are started. Refuses to know anything else."""

import os
import sys
from types import TracebackType

# Read when torch or faiss is first imported. Threads that wait by spinning take the cores from
# those that work: on a busy machine a batch is ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _told(_: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
    """Show what ends `python -m launch.NAME` while it is imported, such as a package that is not
    there, as `launch.cli.run` would, and leave with its exit code."""
    from launch.cli import run

    def again(_: object) -> int:
        raise error

    sys.exit(run(again, []))


if sys.argv[:1] == ["-m"]:  # Python is still looking for the module that it will run
    sys.excepthook = _told
