"""Entry points: one command a file, plus the set-up scripts.

Owns how things are started. Refuses to know anything else.
"""
