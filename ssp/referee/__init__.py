"""Who checks: rules first, then one verifier pass over the questions that kept them all."""

from ssp.referee.referee import Referee

__all__ = ["Referee"]
