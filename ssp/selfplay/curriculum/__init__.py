"""Curriculum telemetry: what the questions of a run are like, whether they become harder, whether
they are still many."""
