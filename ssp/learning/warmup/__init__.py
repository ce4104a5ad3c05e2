"""Warm start of any policy: supervised fine-tuning on traces, with training's own prompts, masks and learner.

Owns the way from traces, or from a run's good episodes, to a policy folder. Promises that a trace is tokenised by the
rollout that training uses (law 8), so that only what the policy writes there is trained. Refuses to know Ray.
"""
