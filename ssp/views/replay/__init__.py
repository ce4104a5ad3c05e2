"""Replay: an episode of a run again, forced along its record, by the rollout, referee and rewards
of training (law 8)."""
