"""The miniature of a recipe (`ssp train --tiny`): a model that has learned a protocol's form and
nothing else."""

MODEL = "tiny"
"""Value of `<role>.model` for this policy."""
