"""Replay: an episode of a run again, forced along its record.

Promises the rollout, protocol, referee and rewards of training (law 8), and that nothing is written.
"""
