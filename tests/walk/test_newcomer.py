"""The newcomer's walk as a test: every ```bash block of README.md and docs/*.md, in page order, in a fresh clone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from docpages import ROOT
from trainruns import REPO

HOURS = 3


@pytest.mark.long
@pytest.mark.timeout(HOURS * 3600)
def test_a_newcomer_gets_through_every_page() -> None:
    """With this environment's packages, so that nothing is installed; `python tests/walk/walk.py` alone installs too."""
    command = [sys.executable, str(ROOT / "tests" / "walk" / "walk.py"), "--venv", sys.prefix]
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
