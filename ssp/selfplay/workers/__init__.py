"""What a player, a judge and a learner do in one call, whoever calls them: one process of ours, or a Ray actor.

Owns engines, tokenizers and models between calls. Refuses to know the game and Ray.
"""
