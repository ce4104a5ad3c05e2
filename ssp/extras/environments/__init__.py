"""Environments of other libraries as the solver's world: an agent plays one, and its score is the
reward. A file of one's own names it, and the rows are written once by its `write`:

    from ssp.extras.environments import gym

    solve = gym.player("FrozenLake-v1", actions=("left", "down", "right", "up"))
    if __name__ == "__main__":
        solve.write("questions.jsonl", 100)
"""

import json
from collections.abc import Iterable
from pathlib import Path

SOLVED, FAILED = "solved", "failed"
"""What a player hands in; the first is the right answer to every row."""


def ended(score: float, solved: float) -> str:
    """The answer that stands for a score."""
    return SOLVED if score >= solved else FAILED


def write_rows(path: Path | str, questions: Iterable[str]) -> None:
    """Write the rows of a game (game.questions=dataset data.questions=FILE), a line each."""
    lines = []
    for number, question in enumerate(questions):
        row = {"id": str(number), "question": question, "golden_answers": [SOLVED]}
        lines.append(json.dumps(row, ensure_ascii=False))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
