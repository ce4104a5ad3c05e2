"""`python -m launch.migrate`."""

import sys

from launch.main import run
from launch.migrate import main

raise SystemExit(run(main, sys.argv[1:]))
