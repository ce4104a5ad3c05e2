"""The game as a running system: who plays, when, and what becomes of every episode. Knows workers
only as a `Crew`."""
