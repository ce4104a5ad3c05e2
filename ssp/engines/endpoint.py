"""An engine behind HTTP: an OpenAI-compatible completion server that takes and returns token ids
(vLLM's, for one).

Promises token in, token out (law 1): a server that does not say which ids it sampled is refused at
the start. A server's failure is a Fault `engine_down`, a request that it refuses and an answer that
is not the contract `engine_refused`; the key leaves in the Authorization header only. It loads no
weights, so it evaluates and never trains."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from ssp.base.errors import Fault, InputError, holding
from ssp.base.services import ENGINE_KEY, SEALED, Service, key_from
from ssp.config.role import EngineConfig
from ssp.engines.base import FreeEngine, Generation, Sampling, Slot, Slots, check_step

WHOLE = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""The whole distribution, said outright: a server of vLLM takes what a request does not say from the
model's generation_config.json."""

DOWN, REFUSED = "engine_down", "engine_refused"
TIMEOUT, CONCURRENCY = 300.0, 64
"""Seconds for one turn; requests at once."""
_LARGEST_ID = 2**31
"""No vocabulary has so many ids; tokenizers cannot decode larger ones."""
_REFUSALS = {
    "token_ids": "the server returns no token ids (vLLM does, with return_token_ids)",
    "logprobs": "the server returns no log-prob for each token",
    "choices": "the answer does not hold one choice",
}


class _TokenLogprobs(BaseModel):
    token_logprobs: list[Annotated[float, Field(strict=True, allow_inf_nan=False)]]


class _CompletionChoice(BaseModel):
    token_ids: list[Annotated[int, Field(strict=True, ge=0, lt=_LARGEST_ID)]]
    logprobs: _TokenLogprobs
    finish_reason: Any = None


class _Completion(BaseModel):
    """What the answer of a completion server must hold."""

    choices: list[_CompletionChoice] = Field(min_length=1, max_length=1)


def made(config: EngineConfig, folder: object, sleeps: bool) -> "EndpointEngine":
    """The engine at `engine.url`, http://HOST/v1#MODEL. InputError as of `EndpointEngine`."""
    url, _, model = config.url.removeprefix(SEALED).partition("#")
    return EndpointEngine(url, model, key_from(ENGINE_KEY, config.url))


class EndpointEngine(Slots, FreeEngine):
    """Generates by POST `{url}/completions`, each slot by itself. `url`: the server's base, with
    /v1. `key`: the server's API key, "" = none; never logged. InputError when the server cannot be
    reached, does not know `model`, or returns no token ids."""

    def __init__(self, url: str, model: str, key: str = "") -> None:
        import httpx

        super().__init__()
        self.version = 0
        self._url = url.rstrip("/")
        self._model = model
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=CONCURRENCY)
        self._service = Service(
            (DOWN, REFUSED), TIMEOUT, secret=key, headers=headers, limits=limits
        )
        rule = f"the endpoint {url} answers for model {model} with token ids"
        with holding(Fault, rule, str, "start the server, or check both"):
            self._complete({"prompt": [0], "max_tokens": 1, "temperature": 0.0})
        self._pool = ThreadPoolExecutor(CONCURRENCY)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """InputError: the server's weights cannot be replaced from here."""
        raise InputError(
            "an endpoint's weights are its own", self._url, "train with another engine"
        )

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot; see `FreeEngine.submit`."""
        check_step([slot], [pending], self._slots)
        return self._pool.submit(self._turn, self._slots[slot], pending, sampling)

    def _turn(self, slot: Slot, pending: Sequence[int], sampling: Sampling) -> Generation:
        slot.ids.extend(pending)
        words = sampling.stop_words
        body: dict[str, Any] = {"prompt": slot.ids, "max_tokens": sampling.max_tokens}
        body["temperature"] = sampling.temperature
        body |= WHOLE
        body["seed"] = (slot.seed + slot.turns) % 2**31
        body["stop_token_ids"] = list(sampling.stop_ids)
        body["stop"] = list(words.strings) if words else None
        body["include_stop_str_in_output"] = True
        generation = self._complete(body)
        if words:
            # a server that joins tokens to another text than ours goes on behind a stop string
            for end in range(1, len(generation.ids) + 1):
                if words.hit(generation.ids[:end]):
                    del generation.ids[end:], generation.logprobs[end:]
                    generation.stopped = True
                    break
        slot.ids.extend(generation.ids)
        slot.turns += 1
        return generation

    def _complete(self, body: dict[str, Any]) -> Generation:
        options = {"logprobs": 0, "return_token_ids": True, "skip_special_tokens": False}
        asked = {"model": self._model, **options, **body}
        status, content = self._service.ask("POST", f"{self._url}/completions", json=asked)
        if status >= 300:
            raise Fault(REFUSED, f"status {status}: {self._service.said(content)}")
        try:
            (choice,) = _Completion.model_validate_json(content).choices
        except ValidationError as error:
            place = error.errors()[0]["loc"]
            whats = [what for name, what in _REFUSALS.items() if name in place]
            raise Fault(REFUSED, whats[0] if whats else "the answer is not JSON") from error
        ids = choice.token_ids
        logprobs = choice.logprobs.token_logprobs
        most = body["max_tokens"]
        if len(ids) > most:
            what = f"the server returns {len(ids)} tokens where {most} were asked for"
            raise Fault(REFUSED, what)
        if len(logprobs) != len(ids):
            raise Fault(REFUSED, _REFUSALS["logprobs"])
        return Generation(ids, logprobs, self.version, choice.finish_reason == "stop")
