"""Runs beside each other: settings, held-out scores with intervals, cost, the best checkpoint,
paired differences."""
