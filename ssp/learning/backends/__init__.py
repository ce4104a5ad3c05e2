"""How a learner computes: one process in torch, or several ranks in DeepSpeed."""
