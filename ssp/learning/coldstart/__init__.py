"""The embedded policy (`model=coldstart`): a tiny model that was taught the game badly on purpose,
so that self-play can begin. It is shipped as a model folder; tests/bench/coldstart/teach.py of the
repository wrote it."""

from pathlib import Path

ARTEFACT = Path(__file__).parent / "artefact"
