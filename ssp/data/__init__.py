"""Data from files: corpora, targets and evaluation questions, in the formats of the field."""
