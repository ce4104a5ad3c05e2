"""Whether a run is well: limits of each role's figures (`limits`), and questions that are junk (`junk`).

Refuses to decide what an alarm leads to: that is the coordinator's.
"""
