"""Memory that was freed: kept for the next step, and given back when asked."""

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
give_back(below=0)
assert before - resident() < 1_000_000
give_back(below=1)
print(before - resident())
"""


KEPT = """
import resource
from ssp.base.devices import keep_pages

keep_pages()
faults = []
for _ in range(3):
    array = bytearray(b"x" * 100_000_000)
    del array
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[2] - faults[1])
"""


def test_a_large_array_takes_the_pages_of_the_one_before() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_000  # 24,414 where each is mapped anew


def test_what_was_freed_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 250_000_000
