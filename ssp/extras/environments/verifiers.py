"""Plays an environment of `verifiers`: it asks the policy at the episode's endpoint, and its rubric
scores what came of it."""

import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssp.base.errors import hold, holding
from ssp.extras.environments import ended, write_rows
from ssp.game.rollout.longlived import PolicyMistake

_ROW = re.compile(r", row (\d+)\Z")
_MISTAKES = {"EmptyModelResponseError", "InvalidModelResponseError", "ToolParseError"}
"""Errors of verifiers for what the policy wrote, or did not write."""


def player(environment: Any, solved: float = 1.0, **options: Any) -> Any:
    """The agent that plays an environment: the one of this name, loaded with `options`, or what a
    function without parameters makes; `solver.agent` names it.

    `solved`: the score of a right answer. InputError for a missing package, and for an environment
    that cannot be loaded."""
    rule = "environments of verifiers need the package verifiers, with load_environment"
    step = "pip install 'verifiers<0.2'"
    with holding(ImportError, rule, lambda _: "not installed", step):
        from verifiers import OpenAIChatCompletionsClient, load_environment
    loaded = environment
    if isinstance(environment, str):
        rule, step = "an environment of verifiers is installed", "pip install it"
        with holding(Exception, rule, lambda error: f"{environment}: {error}", step):
            loaded = _made(lambda: load_environment(environment, **options))
    elif callable(environment):
        loaded = _made(environment)
    rows = [dict(each) for each in loaded.get_dataset()]

    async def solve(question: str, client: Any, model: str, tools: Any) -> Any:
        numbered = _ROW.search(question.rstrip("?"))
        number = int(numbered[1]) if numbered else len(rows)
        known, step = number < len(rows), "write the rows again"
        hold(known, "a question ends with `, row N` of the environment", question[-80:], step)
        asking = OpenAIChatCompletionsClient(client)
        output = await loaded.run_rollout(rows[number], asking, model, {})
        error = output.get("error")
        if error:
            kind = PolicyMistake if error["error"] in _MISTAKES else RuntimeError
            raise kind(error["error_chain_str"])
        score = float(output["reward"])
        return ended(score, solved), score

    def write(path: Path | str, number: int) -> None:
        questions = []
        for index, row in enumerate(rows[:number]):
            prompt = row["prompt"]
            asked = prompt if isinstance(prompt, str) else prompt[-1]["content"]
            questions.append(f"{asked}, row {index}")  # two may ask the same
        write_rows(path, questions)

    solve.mistakes = (PolicyMistake,)  # type: ignore[attr-defined]
    solve.write = write  # type: ignore[attr-defined]
    return solve


_ONE = threading.RLock()
"""Held while `signal.signal` is another: each puts back what it found."""


def _made(make: Callable[[], Any]) -> Any:
    """What `make` makes. Environments set handlers of signals without asking, which a thread other
    than the main one may not, as a player's is: they get none there. Other threads still do."""
    if threading.current_thread() is threading.main_thread():
        return make()
    here = threading.get_ident()
    with _ONE:
        own = signal.signal

        def elsewhere(*handler: Any) -> Any:
            return None if threading.get_ident() == here else own(*handler)

        signal.signal = elsewhere  # type: ignore[assignment]
        try:
            return make()
        finally:
            signal.signal = own
