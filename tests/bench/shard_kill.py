"""A shard killed under load: what clients see of it.

    python tests/bench/shard_kill.py [--clients 64] [--seconds 60] [--rows 20001]

For each way to run two shards (the lost one is waited for, a replica steps in) so many clients ask one query
after the other; at a third of the time one shard's process is killed. Every answer is compared with that of
one process. Prints one line each.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE)]

import ray  # noqa: E402
from shardruns import Truth, configured, crowd, shards, write_corpus  # noqa: E402

from actors.cluster import connect, disconnect  # noqa: E402
from actors.fleet import connect_search  # noqa: E402

WAYS = {
    "1 replica": ["retriever.timeout=60"],
    "2 replicas": ["retriever.timeout=60", "retriever.replicas=2"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=20_001)
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        file = write_corpus(Path(folder) / "corpus.jsonl", args.rows)
        connect(configured(file, "ray.dashboard=-1").ray)
        try:
            for number, (name, settings) in enumerate(WAYS.items()):
                cfg = configured(file, *settings)
                with shards(cfg, f"kill{number}") as handles:
                    search, truth = connect_search(cfg, f"kill{number}"), Truth(cfg)
                    victim = ray.get(handles[1, 0].ping.remote())
                    tally = crowd(
                        search, truth, args.clients, args.seconds, lambda pid=victim: os.kill(pid, signal.SIGKILL)
                    )
                lost = tally.asked - tally.answered - sum(tally.faults.values())
                bad += len(tally.wrong) + len(tally.broken) + lost + sum(tally.faults.values())
                print(
                    f"{name}: {tally.asked:,} asked ({tally.asked / args.seconds:.0f}/s), wrong {len(tally.wrong)}, "
                    f"lost {lost}, void {tally.faults or 0}, broken {len(tally.broken)}; "
                    f"longest {tally.longest:.1f} s; load {os.getloadavg()[0]:.0f}",
                    flush=True,
                )
        finally:
            disconnect()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
