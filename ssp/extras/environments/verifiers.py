"""Plays an environment of `verifiers`: it asks the policy at the episode's endpoint, and its rubric
scores what came of it."""

from pathlib import Path
from typing import Any

from ssp.base.errors import hold, holding
from ssp.extras.environments import ended, write_rows


def player(environment: Any, solved: float = 1.0, **options: Any) -> Any:
    """The agent that plays an environment, or the one of this name, loaded with `options`;
    `solver.agent` names it.

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
            loaded = load_environment(environment, **options)
    rows: dict[str, dict[str, Any]] = {}
    for each in loaded.get_dataset():
        prompt = each["prompt"]
        asked = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
        rows[asked] = dict(each)

    async def solve(question: str, client: Any, model: str, tools: Any) -> Any:
        known, step = question in rows, "write the rows again"
        hold(known, "a row asks what the environment asks", question[:80], step)
        asking = OpenAIChatCompletionsClient(client)
        output = await loaded.run_rollout(rows[question], asking, model, {})
        if output.get("error"):
            raise RuntimeError(output["error"])
        score = float(output["reward"])
        return ended(score, solved), score

    def write(path: Path | str, number: int) -> None:
        write_rows(path, [*rows][:number])

    solve.write = write  # type: ignore[attr-defined]
    return solve
