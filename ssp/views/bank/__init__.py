"""The question bank: what a run's questions are, who asked them, what the referee said, who answered them and how often."""
