"""Who checks: rules first, then a verifier that must answer from the proposer's evidence, then that evidence itself."""

from ssp.game.referee.referee import CHECKS, Referee
from ssp.game.referee.rules import RULES
from ssp.game.referee.verifier import EndpointVerifier, EngineVerifier

__all__ = ["CHECKS", "RULES", "EndpointVerifier", "EngineVerifier", "Referee"]
