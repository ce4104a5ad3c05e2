"""Environments of other libraries as the solver's world, with small ones in the libraries' place."""

from __future__ import annotations

import json
import signal
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import families
import pytest
from scripts import Books, encode, limits

from ssp import engines
from ssp.base.episode import SOLVER, Episode, Task
from ssp.base.errors import InputError
from ssp.config.role import EngineConfig, SimulatedConfig
from ssp.data.readers import read_questions
from ssp.extras.environments import gym, verifiers
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, agents, rollout

pytest.importorskip("openai")
QWEN = families.qwen()
CHAT = Renderer(protocols.get("chat-tools"), QWEN)


def playing(solve: Any, question: str, *turns: str) -> Episode:
    script = iter([*turns, *turns[-1:] * 20])
    engine = engines.acted(
        EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)),
        lambda history, seed, turn: encode(QWEN, f"{next(script)}<|im_end|>"),
    )
    agent = agents.find("here", lambda place: solve, 30.0)
    settings = Settings(limits(searches=10, turn_tokens=60, total_tokens=4000), 0.0, 3, agent=agent)
    task = Task("t0", "g0", SOLVER, 0, 1, {"question": question})
    (episode,), _ = rollout(engine, CHAT, Books(), [task], settings)
    return episode


class Discrete:
    def __init__(self, n: int) -> None:
        self.n, self.start = n, 0


class Path_:
    """A way of as many fields as its seed says; who walks back from its beginning falls off."""

    metadata = {"render_modes": ["ansi"]}
    action_space: Any = Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, seed: int) -> tuple[int, dict[str, Any]]:
        self.at, self.end = 0, seed
        return self.at, {}

    def render(self) -> str:
        return "".join("\x1b[41m.\x1b[0m" if self.at == place else "." for place in range(self.end + 1))

    def step(self, action: int) -> tuple[int, int, bool, bool, dict[str, Any]]:
        self.at += 1 if action else -1
        return self.at, int(self.at == self.end), self.at in (-1, self.end), False, {}

    def close(self) -> None:
        pass


@pytest.fixture
def gymnasium(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("gymnasium")
    made.make = lambda name, **options: {"Path-v0": Path_}[name](**options)  # type: ignore[attr-defined]
    made.spaces = types.SimpleNamespace(Discrete=Discrete)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gymnasium", made)
    return made


def test_a_state_is_read_an_action_named_and_the_score_is_the_reward(gymnasium: Any, tmp_path: Path) -> None:
    solve = gym.player("Path-v0", actions=("back", "on"), rules="Walk to the end.")
    won = playing(solve, "Path-v0, start 2", "<think>back?</think> I go on", "hm", "On!")
    assert (won.final, won.earned, won.stopped) == ("solved", [1.0], "final")
    assert "[.].." in won.text and ".[.]." in won.text and "No action. Walk to the end." in won.text
    assert playing(solve, "Path-v0, start 2?", "back").earned == [0.0]
    each = gym.player("Path-v0", actions=("back", "on"), turns=True)
    assert playing(each, "Path-v0, start 2", "on").earned == [0.0, 1.0]
    solve.write(tmp_path / "rows.jsonl", 2)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows[1] == {"id": "1", "question": "Path-v0, start 1", "golden_answers": ["solved"]}


def test_an_environment_of_gymnasium_that_cannot_be_played_is_refused(gymnasium: Any, monkeypatch: Any) -> None:
    with pytest.raises(InputError, match="a list, each with a name"):
        gym.player("Path-v0", actions=("on",))
    with pytest.raises(InputError, match="one that Gymnasium knows"):
        gym.player("Path-v1")
    monkeypatch.setattr(Path_, "action_space", "Box")
    with pytest.raises(InputError, match="a list, each with a name"):
        gym.player("Path-v0")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(InputError, match="pip install gymnasium"):
        gym.player("Path-v0")


class Sums:
    """Asks for sums, as they come with blanks, and twice the same with another right answer; sets a signal's handler."""

    def __init__(self) -> None:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)

    def get_dataset(self) -> list[dict[str, Any]]:
        asked = [(f" {n} + {n}?\n", f"{2 * n}") for n in range(3)] + [("Guess.", "7"), ("Guess.", "8")]
        return [{"prompt": [{"role": "user", "content": text}], "answer": answer} for text, answer in asked]

    async def run_rollout(self, row: Any, client: Any, model: str, sampling: Any) -> dict[str, Any]:
        error = None
        try:
            reply = await client.chat.completions.create(model=model, messages=row["prompt"], **sampling)
            said = reply.choices[0].message.content
            error = None if said else "EmptyModelResponseError"
        except Exception as raised:
            said, error = "", type(raised).__name__
        told = {"error": error, "error_chain_repr": f"{error}()", "error_chain_str": f"{error}: no text"}
        return {"reward": float(row["answer"] in said), "error": told if error else None}


def test_only_what_an_environment_sets_of_signals_is_left_out(monkeypatch: Any) -> None:
    """Whoever else sets a handler meanwhile has it; of two that are loaded at once nothing stays."""
    made = types.ModuleType("verifiers")
    made.OpenAIChatCompletionsClient = made.load_environment = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verifiers", made)
    own, before = signal.signal, signal.getsignal(signal.SIGUSR2)
    inside, goes_on = threading.Semaphore(0), threading.Event()

    class Slow(Sums):
        def __init__(self) -> None:
            inside.release()
            assert goes_on.wait(20)
            super().__init__()

    def heard(*_: Any) -> None:
        pass

    try:
        with ThreadPoolExecutor(2) as threads:
            loading = [threads.submit(verifiers.player, Slow) for _ in range(2)]
            assert inside.acquire(timeout=20)
            inside.acquire(timeout=0.2)  # the second one, where nothing holds it
            signal.signal(signal.SIGUSR2, heard)
            goes_on.set()
            assert all(callable(one.result(20)) for one in loading)
        assert signal.signal is own and signal.getsignal(signal.SIGUSR2) is heard
    finally:
        own(signal.SIGUSR2, before)
        signal.signal = own


def test_an_environment_of_verifiers_asks_the_policy_and_scores_it(monkeypatch: Any, tmp_path: Path) -> None:
    made = types.ModuleType("verifiers")
    made.OpenAIChatCompletionsClient = lambda client: client  # type: ignore[attr-defined]
    made.load_environment = lambda name, **options: {"sums": Sums}[name](**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verifiers", made)
    with ThreadPoolExecutor(1) as threads:  # as players load it
        solve, made_here = threads.map(verifiers.player, ["sums", Sums])
    assert playing(made_here, ", row 1", "2").earned == [1.0]
    solve.write(tmp_path / "rows.jsonl", 5)
    asked = [question.question for question in read_questions(tmp_path / "rows.jsonl")]
    right, wrong = playing(solve, asked[2], "It is 4."), playing(solve, asked[2], "It is 5.")
    assert [(one.final, one.earned) for one in (right, wrong)] == [("solved", [1.0]), ("failed", [0.0])]
    assert "<|im_start|>user\n 2 + 2?\n<|im_end|>" in right.text
    assert [playing(solve, each, "8").earned for each in asked[3:]] == [[0.0], [1.0]]
    silent = playing(solve, asked[2], "")
    assert (silent.stopped, silent.cause, silent.detail) == (
        "mistake",
        "",
        "PolicyMistake: EmptyModelResponseError: no text",
    )
    assert playing(solve, "7 + 7?", "It is 14.").cause == "agent_failed"
    assert playing(solve, "7 + 7?, row 5", "It is 14.").cause == "agent_failed"
    with pytest.raises(InputError, match="is installed"):
        verifiers.player("products")
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(InputError, match="pip install 'verifiers"):
        verifiers.player("sums")
