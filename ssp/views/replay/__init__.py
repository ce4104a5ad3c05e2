"""Replay: an episode of a run again, forced along its record.

Owns what is on record of an episode and the ways to compare it. Promises the rollout, protocol, referee and rewards of
training (law 8), and that nothing is written. Refuses to guess: what cannot be compared is said (law 6).
"""
