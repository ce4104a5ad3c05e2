"""What looks after a run while it plays: deaths of its actors, and of Ray's own servers."""
