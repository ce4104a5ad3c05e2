"""Who checks: rules first, then a verifier that must answer from the proposer's evidence, then that
evidence itself."""

from ssp.game.referee.referee import CHECKS, DOUBTS, EndpointVerifier, EngineVerifier, Referee
from ssp.game.referee.rules import RULES

__all__ = ["CHECKS", "DOUBTS", "RULES", "EndpointVerifier", "EngineVerifier", "Referee"]
