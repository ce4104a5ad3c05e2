"""Given questions among proposed ones: a share of what each batch asks (R-Few, arXiv 2512.02472).

They pay who answers alone: nobody in the run wrote them. Which ones a round takes follows from the
seed and the round's number, so a run that goes on has no state to read."""

import math
from collections.abc import Sequence

from ssp.base.episode import GIVEN
from ssp.base.played import Game
from ssp.base.seeds import generator
from ssp.selfplay.rows import TargetRow


class GivenQuestions:
    """The given questions of a run. `share`: of the questions of a batch, which are `size`."""

    def __init__(
        self, rows: Sequence[TargetRow] = (), share: float = 0.0, size: int = 0, seed: int = 0
    ) -> None:
        self._rows = list(rows)
        self._wanted = share * size
        self._seed = seed

    def number(self, round_: int) -> int:
        """How many each batch of a round has: after n rounds of one batch n times the share, rounded
        down."""
        so_far = math.floor(self._wanted * round_ + 1e-9)
        return math.floor(self._wanted * (round_ + 1) + 1e-9) - so_far

    def take(self, round_: int, incarnation: int, earlier: Sequence[Game]) -> list[Game]:
        """The given questions of a round's next batch, as chosen games. `earlier`: what earlier
        batches had beside proposed questions; nothing is asked twice in a round."""
        wanted = self.number(round_)
        if wanted == 0:
            return []
        order = generator(self._seed, "given", round_).permutation(len(self._rows)).tolist()
        taken = sum(game.kind == GIVEN for game in earlier)
        games = []
        for slot, place in enumerate(order[taken : taken + wanted], start=len(earlier)):
            row = self._rows[place]
            game = Game(f"q{round_:05d}x{slot:03d}-i{incarnation}", -1 - slot, row.target)
            game.question = row.question
            game.golds = row.golds
            game.rubric = row.rubric
            game.row = row.row
            game.kind = GIVEN
            game.valid = game.chosen = True
            games.append(game)
        return games
