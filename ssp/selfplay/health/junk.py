"""The junk alarm: the game collapsed into questions that pass the referee and that nobody can answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import SspError
from ssp.config.schema import Config
from ssp.selfplay.records import Game

WIN_RATE, VALID_RATE = 0.1, 0.6
"""The sign: at most this share of the attempts is won, and at least this share of the questions is accepted."""


class JunkAlarm(SspError):
    """Raised at the end of a run that the alarm stopped."""


class JunkWatch:
    """Sees every round's games; answers with an alarm when the sign has held for `alarm_patience` rounds. With
    `health.on_collapse=warn` it only says so."""

    def __init__(self, cfg: Config, say: Callable[[str], None]) -> None:
        self._patience, self._warns, self._say = cfg.referee.alarm_patience, cfg.health.on_collapse == "warn", say
        self._rounds = 0

    def see(self, games: Sequence[Game]) -> JunkAlarm | None:
        """One round. Of past versions' work nothing counts: the newest solver's at the newest proposer's questions does,
        whatever game it is in. Where the newest solver tried none of these, past ones that graded them must do."""
        known = [(game.frozen, game.win_rate) for game in games if game.win_rate is not None]
        rates = [rate for by, rate in known if not by] or [rate for by, rate in known if by == SOLVER]
        asked = [game.valid for game in games if game.proposal is not None and game.frozen != PROPOSER]
        if not rates or not asked:
            return None
        win, valid = sum(rates) / len(rates), sum(asked) / len(asked)
        collapsed = win <= WIN_RATE and valid >= VALID_RATE
        self._rounds = self._rounds + 1 if collapsed else 0
        if self._rounds != self._patience:
            return None
        alarm = JunkAlarm(
            f"junk alarm: for {self._rounds} rounds the solver won at most {WIN_RATE:.0%} of its games "
            f"while the referee passed at least {VALID_RATE:.0%} of the questions (now {win:.0%} and "
            f"{valid:.0%}). The referee accepts questions without an answer. Next: set referee.evidence=chain, or a "
            "stronger verifier, and start again from a checkpoint before the win rate fell."
        )
        if self._warns:
            self._say(str(alarm))
        return None if self._warns else alarm
