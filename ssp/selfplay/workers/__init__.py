"""What a player, a judge and a learner do in one call, whoever calls them: one process of ours, or
a Ray actor."""
