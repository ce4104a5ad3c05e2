"""Runs beside each other: settings, held-out scores with intervals, cost, the best checkpoint, paired differences.

Promises that the unit of an interval is the question, and of several pairs the pair, and that nothing is written.
"""
