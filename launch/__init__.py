"""Entry points: one command a file, plus the set-up scripts.

Owns how things are started. Refuses to know anything else."""

import os

# Read when torch or faiss is first imported. Threads that wait by spinning take the cores from
# those that work: on a busy machine a batch is ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
