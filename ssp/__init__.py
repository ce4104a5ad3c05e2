"""Adversarial search self-play: the game itself, in pure Python and torch.

Nothing in this package knows how work is distributed: every class here runs, and is tested, in one
process."""

__version__ = "0.1.0"
