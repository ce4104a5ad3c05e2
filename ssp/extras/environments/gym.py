"""Plays an environment of Gymnasium, or of what is registered there: its states are shown as text,
and the policy names an action a turn."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssp.base.errors import hold, holding
from ssp.extras.environments import ended, write_rows

_MARKED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0m", re.DOTALL)
_START = re.compile(r"start (\d+)\Z")


def shown(env: Any, state: object) -> str:
    """The state as the environment draws it, what is coloured there in brackets; without a drawing
    the observation."""
    drawn = env.render() if env.render_mode == "ansi" else state
    return _MARKED.sub(r"[\1]", str(drawn)).strip()


def player(
    name: str,
    actions: Sequence[str] = (),
    rules: str = "",
    solved: float = 1.0,
    steps: int = 100,
    show: Callable[[Any, Any], str] = shown,
    turns: bool = False,
    **options: Any,
) -> Any:
    """The agent that plays `name`, made with `options`; `solver.agent` names it.

    `actions`: what the policy calls the actions, in the environment's order (their numbers where
    none are given). `rules`: what it is told. `solved`: the score of a right answer. `steps`: turns
    of an episode at most. `show`: environment and observation → the text of a state. `turns`: the
    reward is a number a turn, in place of their sum. InputError for a missing package, an
    environment that is none, and one whose actions are no short list."""
    rule, step = "environments of Gymnasium need the package gymnasium", "pip install gymnasium"
    with holding(ImportError, rule, lambda _: "not installed", step):
        import gymnasium

    rule = "an environment is one that Gymnasium knows, with options that it takes"
    step = "correct the name, or import the package that registers it"
    with holding(Exception, rule, lambda error: f"{name}: {error}", step):
        env = gymnasium.make(name, **options)
    if "ansi" in env.metadata.get("render_modes", ()):
        options = {"render_mode": "ansi", **options}
    space = env.action_space
    env.close()
    rule = "an environment's actions are a list, each with a name"
    fits = isinstance(space, gymnasium.spaces.Discrete)
    fits = fits and len(actions) in (0, int(space.n))
    hold(fits, rule, f"{name}: {space} with {len(actions)} names", "give as many `actions`")
    first = int(space.start)
    names = actions or [str(number) for number in range(first, first + int(space.n))]
    numbers = {action.lower(): first + number for number, action in enumerate(names)}
    told = f"{rules}\n\nReply with one of these actions: {', '.join(names)}.".strip()
    world = _World(lambda: gymnasium.make(name, **options), numbers, told, show, steps)

    async def solve(question: str, client: Any, model: str, tools: Any) -> Any:
        rewards = await world.play(question, client, model)
        score = sum(rewards)
        return ended(score, solved), rewards if turns else score

    def write(path: Path | str, rows: int) -> None:
        write_rows(path, (f"{name}, start {number}" for number in range(rows)))

    solve.write = write  # type: ignore[attr-defined]
    return solve


@dataclass(frozen=True)
class _World:
    """An environment as a conversation. `numbers`: action → its number. `told`: how it begins."""

    make: Callable[[], Any]
    numbers: dict[str, int]
    told: str
    show: Callable[[Any, Any], str]
    steps: int

    async def play(self, question: str, client: Any, model: str) -> list[float]:
        """The reward of each turn of an episode from the start that the question names."""
        start = _START.search(question.rstrip("?"))
        env = self.make()
        try:
            state, _ = env.reset(seed=int(start[1]) if start else None)
            messages = [{"role": "system", "content": self.told}]
            messages.append({"role": "user", "content": self.show(env, state)})
            rewards: list[float] = []
            for _ in range(self.steps):
                reply = await client.chat.completions.create(model=model, messages=messages)
                text = reply.choices[0].message.content or ""
                messages.append({"role": "assistant", "content": text})
                action = self._named(text)
                if action is None:
                    rewards.append(0.0)
                    messages.append({"role": "user", "content": f"No action. {self.told}"})
                    continue
                state, reward, over, cut, _ = env.step(action)
                rewards.append(float(reward))
                if over or cut:
                    break
                messages.append({"role": "user", "content": self.show(env, state)})
        finally:
            env.close()
        return rewards

    def _named(self, text: str) -> int | None:
        """The action that is named last, behind the thoughts; None for none."""
        words = "|".join(map(re.escape, sorted(self.numbers, key=len, reverse=True)))
        named = re.findall(rf"(?<!\w)({words})(?!\w)", text.rpartition("</think>")[2].lower())
        return self.numbers[named[-1]] if named else None
