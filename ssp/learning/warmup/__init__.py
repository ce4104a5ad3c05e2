"""Warm start of any policy: supervised fine-tuning on traces, with training's own prompts, masks
and learner."""
