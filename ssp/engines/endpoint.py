"""An engine behind HTTP: an OpenAI-compatible completion server that takes and returns token ids
(vLLM's, for one).

Promises token in, token out (law 1): a server that does not say which ids it sampled is refused at
the start. A server's failure is a Fault `engine_down`, a request that it refuses and an answer that
is not the contract `engine_refused`; the key leaves in the Authorization header only. It loads no
weights, so it evaluates and never trains."""

import json
import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ssp.base.errors import Fault, InputError, holding
from ssp.base.services import Service
from ssp.engines.base import FreeEngine, Generation, Sampling, Slot, Slots, check_step

DOWN, REFUSED = "engine_down", "engine_refused"
TIMEOUT, CONCURRENCY = 300.0, 64
"""Seconds for one turn; requests at once."""
_LARGEST_ID = 2**31
"""No vocabulary has so many; tokenizers cannot decode larger ones."""


class EndpointEngine(Slots, FreeEngine):
    """Generates by POST `{url}/completions`, each slot by itself. `url`: the server's base, with
    /v1. `key`: the server's API key, "" = none; never logged. InputError when the server cannot be
    reached, does not know `model`, or returns no token ids."""

    def __init__(self, url: str, model: str, key: str = "") -> None:
        import httpx

        super().__init__()
        self.version = 0
        self._url, self._model = url.rstrip("/"), model
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
        asked = {
            "prompt": slot.ids,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        asked |= {
            "stop": list(words.strings) if words else None,
            "include_stop_str_in_output": True,
        }
        asked |= {
            "stop_token_ids": list(sampling.stop_ids),
            "seed": (slot.seed + slot.turns) % 2**31,
        }
        made = self._complete(asked)
        # a server that puts tokens together to another text than ours goes on behind a stop string
        if words:
            end = next((n for n in range(1, len(made.ids) + 1) if words.hit(made.ids[:n])), 0)
            made = (
                Generation(made.ids[:end], made.logprobs[:end], made.version, True) if end else made
            )
        slot.ids.extend(made.ids)
        slot.turns += 1
        return made

    def _complete(self, body: dict[str, Any]) -> Generation:
        asked = {
            "model": self._model,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            **body,
        }
        status, content = self._service.ask("POST", f"{self._url}/completions", json=asked)
        if status >= 300:
            raise Fault(REFUSED, f"status {status}: {self._service.said(content)}")
        try:
            reply = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Fault(REFUSED, "the answer is not JSON") from error
        choices = reply.get("choices") if isinstance(reply, dict) else None
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            raise Fault(REFUSED, "the answer does not hold one choice")
        ids, logprobs = choices[0].get("token_ids"), choices[0].get("logprobs")
        if not isinstance(ids, list) or not all(
            type(id_) is int and 0 <= id_ < _LARGEST_ID for id_ in ids
        ):
            raise Fault(
                REFUSED, "the server returns no token ids (vLLM does, with return_token_ids)"
            )
        if len(ids) > body["max_tokens"]:
            raise Fault(
                REFUSED,
                f"the server returns {len(ids)} tokens where {body['max_tokens']} were asked for",
            )
        probs = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
        if (
            not isinstance(probs, list)
            or len(probs) != len(ids)
            or not all(isinstance(prob, int | float) and math.isfinite(prob) for prob in probs)
        ):
            raise Fault(REFUSED, "the server returns no log-prob for each token")
        return Generation(
            ids, [float(p) for p in probs], self.version, choices[0].get("finish_reason") == "stop"
        )
