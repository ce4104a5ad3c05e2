"""One episode that an agent plays: its endpoint, its tools, its log.

What the agent has generated is logged as the ids that were sampled (law 1). A request whose
messages go on from those of the one before is the same context: what is new is appended, and not
trained. Another request, of an agent that has rewritten its history, begins a new context, in which
what is sampled there is trained."""

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ssp.base.episode import Document, Episode, Mistake, Task
from ssp.base.errors import Fault, InputError
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.engines.base import FreeEngine, Sampling, StopWords
from ssp.game.protocols.calls import SEARCH, TOOL, Call, read
from ssp.game.protocols.renderer import Renderer
from ssp.game.protocols.template import Message
from ssp.game.rollout import passages
from ssp.game.rollout.chat import MODEL, Refused, canon, check, parsed, plain, stops_of, tools_of
from ssp.game.rollout.settings import Settings
from ssp.game.rollout.tools import ToolRequest, note
from ssp.search.hits import Search

CONTEXTS = 8
"""An episode's log has at most so many times `limits.total_tokens`."""


class AgentPlayer:
    """What an agent is given as `tools`, and what is behind its endpoint. `url` and `key`: of
    that."""

    def __init__(
        self, engine: FreeEngine, renderer: Renderer, search: Search, task: Task, settings: Settings
    ) -> None:
        self._engine, self._renderer, self._search = engine, renderer, search
        self._task, self._settings = task, settings
        self.question, self.url, self.key = (
            task.fields.get("question", ""),
            "",
            secrets.token_urlsafe(24),
        )
        self.episode = Episode(task.id, task.game, task.role, task.attempt, seed=task.seed)
        self.seconds = {"generate": 0.0, "search": 0.0}
        self.broken: Exception | None = None  # what ends the run, of whatever the agent makes of it
        self._slots: list[int] = []
        self._turns = 0
        # the messages of the context, the policy's last one at the end
        self._said: list[Message] = []
        self._offered = ""  # the tools that the context shows
        self._raw: dict[str, str] = {}  # what the policy wrote, by what a client was told of it
        self._calls = itertools.count()  # which may be under way together
        self._turn_of_one, self._seen, self._read_to = (
            asyncio.Lock(),
            dict[str, Document](),
            dict[str, int](),
        )

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The role's tools, in the form that `tools` of a chat request takes."""
        return [offer.function for offer in (SEARCH, *self._renderer.protocol.offers)]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a tool of the role answers, as text, cut and cleaned. Fault when it fails, which
        voids the episode."""
        episode, began = self.episode, time.perf_counter()
        if name not in [schema["function"]["name"] for schema in self.schemas]:
            return f"there is no tool {name}"
        if (
            len(
                asked := read(
                    [json.dumps({"name": name, "arguments": arguments}, default=dict)], [name]
                )
            )
            != 1
        ):
            return f"the arguments of {name} cannot be read"
        (call,) = asked
        try:
            found = await asyncio.to_thread(self._answered, call)
        except Fault as fault:
            if not episode.stopped:  # a limit came first
                episode.void(fault)
            raise
        finally:
            self.seconds["search"] += time.perf_counter() - began
        renderer, most = self._renderer, self._settings.limits.observation_tokens
        bodies, encode, tokenizer = renderer.protocol.bodies, renderer.encode, renderer.tokenizer
        (shown,), text = passages.fit(
            [found],
            most,
            tokenizer,
            lambda kept: (kept, bodies(kept[0])),
            lambda trial: len(encode([trial[1]])[0]),
        )
        kept = [document for document in shown if not isinstance(document, Mistake)]
        note(call, found, kept, self._seen, self._read_to)
        episode.queries.append(call.text)
        episode.tools.append(name)
        episode.hits.append(len(kept))
        episode.asked.append(len(episode.log))
        episode.documents.extend(kept)
        return text

    def _answered(self, call: Call) -> list[Document]:
        task = self._task
        if call.tool == TOOL:
            return self._search.search([call.text], self._settings.topk, task.corpus)[0]
        key = f"{task.game}/{task.role}/{task.seed}/{next(self._calls)}"
        (found,) = self._settings.tools.run([ToolRequest(call, key, self._seen, self._read_to)])
        if isinstance(found, Fault):
            raise found
        return found

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """`POST /v1/chat/completions`. Refused for what cannot be done."""
        check(body)
        listed, tools = body.get("messages"), tools_of(body)
        if (
            not isinstance(listed, list)
            or not listed
            or not all(isinstance(message, dict) for message in listed)
        ):
            raise Refused("messages is a list of messages, one at least")
        messages = [plain(message) for message in listed]
        offered = json.dumps(tools)
        async with self._turn_of_one:
            before = list(map(canon, messages[: len(self._said)]))
            goes_on = (
                bool(self._said)
                and before == list(map(canon, self._said))
                and offered == self._offered
            )
            added = self._added(messages, tools) if goes_on else None
            text = self._rendered(messages, tools) if added is None else added
            raw, written, stopped = await self._turn(text, added is None, body)
            calling = tools and body.get("tool_choice") != "none"
            content, calls = parsed(raw, body, f"call-{self._turns}" if calling else "")
            reply = {"role": "assistant", "content": content} | (
                {"tool_calls": calls} if calls else {}
            )
            self._said, self._offered = [*messages, plain(reply)], offered
            self._raw[canon(self._said[-1])] = raw
        reason = "tool_calls" if calls else "stop" if stopped else "length"
        return self._reply("chat.completion", {"message": reply, "finish_reason": reason}, written)

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """`POST /v1/completions`: a prompt that begins with all that was read and written goes
        on."""
        check(body)
        prompt = body.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise Refused("prompt is one text, and not empty")
        async with self._turn_of_one:
            shown = self._renderer.decode(self.episode.log.context())
            goes_on = bool(shown) and prompt.startswith(shown)
            raw, written, stopped = await self._turn(
                prompt[len(shown) :] if goes_on else prompt, not goes_on, body
            )
            self._said = []
        choice = {
            "text": parsed(raw, body, "")[0],
            "finish_reason": "stop" if stopped else "length",
        }
        return self._reply("text_completion", choice, written)

    def _reply(self, kind: str, choice: dict[str, Any], written: int) -> dict[str, Any]:
        read = len(self.episode.log.context()) - written
        usage = {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        }
        head = {
            "id": f"{self._task.id}-{self._turns}",
            "object": kind,
            "created": int(time.time()),
            "model": MODEL,
        }
        return {**head, "choices": [{"index": 0, "logprobs": None, **choice}], "usage": usage}

    def _rendered(self, messages: Sequence[Message], tools: list[Any], reply: bool = True) -> str:
        """The messages as the policy sees them: what it wrote as it wrote it, of others no control
        tokens."""
        clean, shown = self._renderer.protocol.uncontrolled, list[Message]()
        for message in messages:
            own = self._raw.get(canon(message)) if message["role"] == "assistant" else None
            shown.append(
                {
                    "role": message["role"],
                    "content": clean(message["content"]) if own is None else own,
                }
            )
        try:
            return self._renderer.conversation(shown, tools, reply)
        except (InputError, AttributeError, TypeError) as error:
            # also of tools that are no objects
            raise Refused(str(error)) from error

    def _added(self, messages: list[Message], tools: list[Any]) -> str | None:
        """What follows the last turn, its end included; None where the template shows what was
        before in another way."""
        known = len(self._said)
        written = self._rendered(messages[: known - 1], tools) + self._raw[canon(self._said[-1])]
        closed, whole = (
            self._rendered(messages[:known], tools, reply=False),
            self._rendered(messages, tools),
        )
        return (
            whole[len(written) :]
            if closed.startswith(written) and whole.startswith(closed)
            else None
        )

    async def _turn(self, text: str, fresh: bool, body: dict[str, Any]) -> tuple[str, int, bool]:
        """Append `text`, in a new context when it is `fresh`, and sample. What was written without
        its end, its tokens, and whether it ended by itself."""
        episode, log, limits = self.episode, self.episode.log, self._settings.limits
        # a ValueError where it has half of a surrogate pair, which no tokenizer takes
        text.encode()
        if not fresh and log.ids[-1] in self._renderer.ends:  # which the policy has written itself
            text = self._renderer.without_end(text)
        (ids,) = self._renderer.encode([text])
        length = max(
            len(ids) + (0 if fresh else len(log.context())), (len(log) + len(ids)) // CONTEXTS
        )
        if not episode.stopped and self._turns > limits.searches + limits.retries:
            episode.stopped = "turns"
        elif not episode.stopped and length + limits.turn_tokens > limits.total_tokens:
            episode.stopped = "tokens"
        if episode.stopped:
            raise Refused(f"the episode is over: {episode.stopped}")
        sampling = self._sampling(body)
        if fresh:
            self.close()
            if len(log):
                log.restart()
            self._slots = self._engine.open([derive(self._task.seed, "context", self._turns)])
        episode.response_at = episode.response_at or len(self._renderer.decode(ids))
        log.append(Kind.OBSERVATION if len(log) else Kind.PROMPT, ids)
        self._turns += 1
        began = time.perf_counter()
        try:
            drawn = await asyncio.wrap_future(self._engine.submit(self._slots[0], ids, sampling))
        except Fault as fault:
            if not episode.stopped:  # the agent still waits for it
                episode.void(fault)
            raise
        except Exception as error:  # the engine's own: a bug, as in the built-in loop
            self.broken = error
            raise
        finally:
            self.seconds["generate"] += time.perf_counter() - began
        # the model's own context is shorter; the engine has not read `ids`
        if not drawn.ids and not episode.stopped:
            episode.stopped = "tokens"
        if episode.stopped:
            raise Refused(f"the episode is over: {episode.stopped}")
        log.append_model(
            drawn.ids, drawn.logprobs, drawn.version if drawn.versions is None else drawn.versions
        )
        ended = drawn.ids[-1:] and drawn.ids[-1] in self._renderer.ends
        return (
            self._renderer.decode(drawn.ids[:-1] if ended else drawn.ids),
            len(drawn.ids),
            drawn.stopped,
        )

    def _sampling(self, body: dict[str, Any]) -> Sampling:
        """Temperature is the run's, whatever is asked for: the log-probs are those of the policy
        that learns."""
        asked, stops = body.get("max_completion_tokens") or body.get("max_tokens"), stops_of(body)
        most = self._settings.limits.turn_tokens
        if asked is not None and not (isinstance(asked, int) and asked > 0):
            raise Refused("max_tokens is a number above 0")
        words = StopWords(stops, self._renderer.decode) if stops else None
        return Sampling(
            self._settings.temperature, min(asked or most, most), self._renderer.ends, words
        )

    def close(self) -> None:
        """Give the slot back; a turn under way is aborted."""
        self._engine.close(self._slots)
