"""Whether a round plays a further batch: until the answering role has its groups with spread
(`game.refill`), and each role that learns has its `min_groups`."""

from ssp.base.errors import TooFewGroups
from ssp.config.crews import MOST_BATCHES, learns
from ssp.config.schema import Config
from ssp.selfplay.credit import Credits
from ssp.selfplay.paying import spread
from ssp.selfplay.settle import rate
from ssp.selfplay.settled import Round


class Refill:
    """Counts the groups of a round that have two different rewards."""

    def __init__(self, cfg: Config, credits: Credits) -> None:
        self._cfg = cfg
        self._credits = credits

    def wanted(self, this: Round, batches: int) -> bool:
        """Whether a further batch is wanted after `batches`. TooFewGroups where a role still has
        too few groups after `MOST_BATCHES`."""
        rate(self._cfg, this.played)
        short = self._short(this)
        if short and batches >= MOST_BATCHES:
            lack = f"step {this.step} has no update: after {batches} batches {', '.join(short)}"
            raise TooFewGroups(
                f"{lack}. What is played teaches too little: take questions of another difficulty,"
                " more game.attempts, or a lower min_groups"
            )
        if short:
            return True
        answerer = self._cfg.spec.answerer
        if batches >= self._cfg.game.refill or not learns(self._cfg, answerer, this.step):
            return False
        groups = spread(self._cfg, answerer, this.played, self._credits)
        return groups < self._cfg.block(answerer).batch

    def _short(self, this: Round) -> list[str]:
        """Roles that learn now and have too few groups, with how many they have."""
        short = []
        for role in self._cfg.roles:
            needed = self._cfg.block(role).min_groups
            if needed == 0 or not learns(self._cfg, role, this.step):
                continue
            groups = spread(self._cfg, role, this.played, self._credits)
            if groups < needed:
                short.append(f"{role} has {groups} groups whose rewards differ, of {needed}")
        return short
