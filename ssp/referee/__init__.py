"""Who checks: rules first, then a verifier that must answer from the proposer's evidence, then that evidence itself."""

from ssp.referee.referee import CHECKS, Referee
from ssp.referee.rules import RULES
from ssp.referee.verifier import EndpointVerifier, EngineVerifier

__all__ = ["CHECKS", "RULES", "EndpointVerifier", "EngineVerifier", "Referee"]
