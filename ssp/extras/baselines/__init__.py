"""Baselines of an evaluation: `ssp eval --method`."""
