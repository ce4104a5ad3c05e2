"""The game itself: protocols, rollouts, judges, referees, rewards, and the measure of a policy."""
