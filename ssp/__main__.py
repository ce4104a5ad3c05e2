"""`python -m ssp ...`: what the console script `ssp` does, in this Python."""

import sys

from launch.main import main

if __name__ == "__main__":
    sys.exit(main())
