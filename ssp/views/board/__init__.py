"""The board: a run's figures, versions, questions and duels as one page, while it plays and
afterwards (docs/board.md)."""
