"""kill -9 in the middle of writing: what is in the file is whole calls, and the law holds."""

from __future__ import annotations

import subprocess
import sys
import time

from ssp.record.ledger import Ledger

WRITER = """
import itertools, sys
from ssp.record.ledger import Ledger
ledger = Ledger(sys.argv[1])
for call in itertools.count():
    ids = [f"{call}-{i}" for i in range(50)]
    ledger.create([{"id": id, "game_id": "g", "role": "solver"} for id in ids])
    ledger.advance([{"id": id, "state": "queued", "outcome": "scored", "reward": 1.0} for id in ids])
    ledger.commit("solver", 1, call + 1, call + 1, ids)
    print(call, flush=True)
"""


def test_a_killed_writer_leaves_whole_calls(tmp_path):
    file = tmp_path / "ledger.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(5):
        said = int(writer.stdout.readline())
    time.sleep(0.003)
    writer.kill()
    writer.wait()
    said = max([said, *map(int, writer.stdout.read().split())])
    ledger = Ledger(file)
    states = ledger.check()["solver"]
    assert all(number % 50 == 0 for number in states.values())
    assert states["trained"] >= 50 * (said + 1)
    counts = ledger.rollback({"solver": 3})
    assert counts["trained"] == states["trained"] - 150
    assert ledger.check()["solver"]["trained"] == 150
