"""Several answers of the verifier are several draws, whatever answers: vLLM, a completion server, a chat endpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from httpfakes import answering
from proposals import MINI, Words, noise, proposal

from ssp.base.errors import InputError
from ssp.capacity.memory.processes import judge as needs_of_judge
from ssp.config.role import EngineConfig
from ssp.config.schema import JudgeConfig, RefereeConfig
from ssp.engines.endpoint import EndpointEngine
from ssp.engines.vllm import setup
from ssp.engines.vllm.engine import VllmEngine
from ssp.game.judge import AnswerJudge
from ssp.game.judge.endpoint import Endpoint
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee import EndpointVerifier, EngineVerifier, Referee
from ssp.game.referee.referee import Verifier
from ssp.learning import coldstart
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from tests.blocks import made

ASKED = [("vure", 0)]
SAID = "<answer> vure </answer>"

Draw = dict[str, Any]
"""What one answer was asked for: `prompt`, `temperature`, `seed`."""
Made = Callable[[RefereeConfig, Words], Verifier]


class Unsaid:
    """What stands for vLLM's engine: each request ends at once with the ids of `said`."""

    def __init__(self, said: list[int], draws: list[Draw]) -> None:
        self._said, self._draws, self._waiting = said, draws, []  # type: ignore[var-annotated]
        self.engine_core = SimpleNamespace(shutdown=lambda: None)
        self.model_config = SimpleNamespace(max_model_len=4096, get_vocab_size=lambda: 4096)

    def add_request(self, name: str, prompt: dict[str, Any], params: dict[str, Any], lora_request: Any) -> None:
        self._draws.append({"prompt": prompt["prompt_token_ids"], **params})
        self._waiting.append(name)

    def step(self) -> list[Any]:
        names, self._waiting = self._waiting, []
        probabilities = [{id: SimpleNamespace(logprob=-0.5)} for id in self._said]
        new = SimpleNamespace(token_ids=self._said, logprobs=probabilities, finish_reason="stop")
        return [SimpleNamespace(request_id=name, outputs=[new], finished=True) for name in names]

    def abort_request(self, names: list[str]) -> None:
        pass


@contextmanager
def on_vllm(draws: list[Draw], monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    engines = []

    def make(cfg: RefereeConfig, words: Words) -> Verifier:
        modules = {name: ModuleType(name) for name in ("vllm", "vllm.sampling_params")}
        modules["vllm"].SamplingParams = dict  # type: ignore[attr-defined]
        modules["vllm.sampling_params"].RequestOutputKind = SimpleNamespace(DELTA=1)  # type: ignore[attr-defined]
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(setup, "start", lambda *_: Unsaid(words.encode(SAID), draws))
        engines.append(VllmEngine(coldstart.ARTEFACT, EngineConfig(kind="vllm")))
        return EngineVerifier(engines[-1], Renderer(MINI, words), cfg)  # type: ignore[arg-type]

    yield make
    for engine in engines:
        engine.stop()


@contextmanager
def on_a_completion_server(draws: list[Draw], _: object) -> Iterator[Made]:
    said: list[int] = []

    def answer(body: Draw) -> tuple[int, Any]:
        if said:  # else it is asked whether it is there
            draws.append(body)
        ids = said[: body["max_tokens"]] or [0]
        logprobs = {"token_logprobs": [-0.5] * len(ids)}
        return 200, {"choices": [{"token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}]}

    with answering(answer) as base:

        def make(cfg: RefereeConfig, words: Words) -> Verifier:
            engine = EndpointEngine(f"{base}/v1", "m")
            said[:] = words.encode(SAID)
            return EngineVerifier(engine, Renderer(MINI, words), cfg)  # type: ignore[arg-type]

        yield make


@contextmanager
def on_a_chat_endpoint(draws: list[Draw], _: object) -> Iterator[Made]:
    def answer(body: Draw) -> tuple[int, Any]:
        draws.append({**body, "prompt": body["messages"]})
        return 200, {"choices": [{"message": {"content": SAID}}]}

    with answering(answer) as base:

        def make(cfg: RefereeConfig, words: Words) -> Verifier:
            told = made(JudgeConfig, kind="llm", url=f"{base}/v1", model="m", concurrency=1)
            return EndpointVerifier(Endpoint(told), Renderer(MINI, words, "plain"), cfg)  # type: ignore[arg-type]

        yield make


@pytest.mark.covers("GA-08")
@pytest.mark.parametrize("kind", [on_vllm, on_a_completion_server, on_a_chat_endpoint])
def test_each_answer_is_a_draw_of_its_own(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for samples in (1, 3, 3):
        draws: list[Draw] = []
        cfg = made(RefereeConfig, evidence="none", noise=0, samples=samples, needed=samples)
        with kind(draws, monkeypatch) as make:
            referee = Referee(cfg, MINI, make(cfg, Words()), AnswerJudge(), seed=3)
            (verdict,) = referee.check([proposal("a")], ASKED, noise)
        assert verdict.valid and len(draws) == samples
        assert all(draw["prompt"] == draws[0]["prompt"] for draw in draws)
        assert [draw["temperature"] for draw in draws] == [float(samples > 1)] * samples
        drawn.append({draw.get("seed") for draw in draws})
    assert len(drawn[1]) == 3 and None not in drawn[1], "one seed for all is one answer three times"
    assert drawn[1] == drawn[2], "whoever is asked again draws the same"


JUDGED = ["referee.verifier=judge", "referee.evidence=none", "judge.model=m"]


@pytest.mark.parametrize(("samples", "probe"), [(1, None), (2, 1.0)])
def test_the_probe_of_an_endpoint_is_drawn_as_its_answers_are(samples: int, probe: float | None) -> None:
    """A server that takes no seed is seen before the run begins."""
    bodies: list[Draw] = []

    def answer(body: Draw) -> tuple[int, Any]:
        bodies.append(body)
        if "seed" in body:
            return 422, {"error": {"message": "seed is not permitted"}}
        return 200, {"choices": [{"message": {"content": "Correct"}}]}

    with answering(answer) as base:
        for judge in ("exact", "llm"):
            settings = [f"judge.kind={judge}", f"judge.url={base}/v1", f"referee.samples={samples}"]
            cfg = load("quickstart", [*JUDGED, *settings])
            bodies.clear()
            if probe is None:
                build.check_judge(cfg)
                assert [body["temperature"] for body in bodies] == [0.0]
                continue
            with pytest.raises(InputError, match="seed is not permitted"):
                build.check_judge(cfg)
            assert bodies[-1]["temperature"] == probe


def test_memory_is_counted_for_all_answers_at_once() -> None:
    caches = []
    for samples in (1, 3):
        cfg = load("quickstart", ["placement.judges=1", f"referee.samples={samples}"])
        caches += [need.bytes for need in needs_of_judge(cfg, 0).needs if "KV cache" in need.what]
    assert caches[1] == 3 * caches[0] > 0
