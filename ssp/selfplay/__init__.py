"""The game as a running system: who plays, when, and what becomes of every episode.

Owns the coordinator and its parts. Promises to know workers only through `Crew`, so the same loop runs in one process
and on a cluster. Refuses to import Ray.
"""
