"""Replay: an episode of a run again from its record, forced along it, sampled anew, or played by another policy.

Owns what is on record of an episode and the ways to compare it. Promises the rollout, protocol, referee and rewards of
training (law 8), and that nothing is written. Refuses to guess: what cannot be compared is said (law 6).
"""
