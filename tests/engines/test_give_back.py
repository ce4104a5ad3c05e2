"""Memory that was freed, and lies below something that lives."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from pathlib import Path
from ssp.base.devices import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

kept = [bytearray(b"x" * 60_000) for _ in range(5_000)]
kept = kept[-1:]  # glibc gives back the end of its heap alone
before = resident()
give_back()
print(before - resident())
"""


def test_what_was_freed_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 250_000_000
