"""Numbers by their names, as they pass between files."""

Seconds = dict[str, float]
"""Part of a work → how long it took."""
Values = dict[str, float]
"""Figure → its value, of one role, round or evaluation."""
