"""One episode that an agent plays: its endpoint, its tools, its log.

The log holds the ids that were sampled (law 1). A request whose messages go on from those of the
request before goes on with its context: what is new is appended, and not trained. Any other
request, as of an agent that rewrites its history, begins a new context; what is sampled there is
trained."""

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ssp.base.episode import Document, Episode, Task
from ssp.base.errors import Fault, InputError
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.data.told import hidden
from ssp.engines.base import FreeEngine, Generation, Sampling, StopWords
from ssp.game.protocols.calls import SEARCH, TOOL, Call, read
from ssp.game.protocols.renderer import Renderer
from ssp.game.protocols.template import Message, opening
from ssp.game.rollout import passages
from ssp.game.rollout.chat import (
    MODEL,
    Body,
    Refused,
    canon,
    check,
    completion,
    parsed,
    plain,
    stops_of,
    tokens_of,
    tools_of,
    until,
)
from ssp.game.rollout.settings import Settings
from ssp.game.rollout.tools import ToolRequest, note
from ssp.search.hits import Search

CONTEXTS = 8
"""The most that an episode's log may hold, as a multiple of `limits.total_tokens`."""


class AgentPlayer:
    """What an agent gets as `tools`, and what answers at its endpoint, which has `url` and `key`.
    `broken`: an error of the engine, which ends the run whatever the agent makes of it. `said`: what
    the agent told of its troubles."""

    def __init__(
        self, engine: FreeEngine, renderer: Renderer, search: Search, task: Task, settings: Settings
    ) -> None:
        self._engine, self._renderer, self._search = engine, renderer, search
        self._task, self._settings = task, settings
        self.question = task.fields.get("question", "")
        self.url = ""
        self.key = secrets.token_urlsafe(24)
        self.said = ""
        self.episode = Episode(task.id, task.game, task.role, task.attempt, seed=task.seed)
        self.seconds = {"generate": 0.0, "search": 0.0}
        self.broken: Exception | None = None
        self._slots: list[int] = []
        self._turns = 0
        self._turn_lock = asyncio.Lock()
        self._context: list[Message] = []  # its last message is the policy's
        self._offered = ""  # the tools that the context shows, as JSON
        # The policy's turns with what their prompts opened, by what a client was told.
        self._raw: dict[str, str] = {}
        self._calls = itertools.count()  # which may be under way together
        self._seen: dict[str, Document] = {}
        self._read_to: dict[str, int] = {}

    def row(self, golds: bool) -> Body:
        """The question's row: `id`, `question`, and the other columns of its file; with `golds` the
        right answers, where they are known."""
        row = self._task.row
        shown = row if golds else hidden(row, row.get("golds", ()))
        return {**shown, "id": row.get("id", self._task.game), "question": self.question}

    @property
    def mcp(self) -> str:
        """The address at which an MCP client lists and calls the role's tools."""
        return f"{self.url}/mcp"

    @property
    def schemas(self) -> list[Body]:
        """The role's tools, in the form that `tools` of a chat request takes."""
        return [offer.function for offer in (SEARCH, *self._renderer.protocol.offers)]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The answer of a tool of the role, as text, cut and cleaned. Fault when it fails, which
        voids the episode."""
        episode = self.episode
        began = time.perf_counter()
        offers = [
            offer for offer in (SEARCH, *self._renderer.protocol.offers) if offer.name == name
        ]
        if not offers:
            return f"there is no tool {name}"
        body = json.dumps({"name": name, "arguments": arguments}, default=dict)
        calls = read([body], offers)
        if len(calls) != 1:
            return f"the arguments of {name} cannot be read"
        (call,) = calls
        try:
            documents = await asyncio.to_thread(self._answered, call)
        except Fault as fault:
            if not episode.stopped:  # a limit came first
                episode.void(fault)
            raise
        finally:
            self.seconds["search"] += time.perf_counter() - began

        def show(kept: passages.Results) -> tuple[list[Document], str]:
            return kept[0], self._renderer.protocol.bodies(kept[0])

        def size(trial: tuple[list[Document], str]) -> int:
            (ids,) = self._renderer.encode([trial[1]])
            return len(ids)

        most = self._settings.limits.observation_tokens
        shown, text = passages.fit([documents], most, self._renderer.tokenizer, show, size)
        episode.tools.append(name)
        note(episode, call, documents, shown, self._seen, self._read_to)
        return text

    def _answered(self, call: Call) -> list[Document]:
        task = self._task
        if call.tool == TOOL:
            return self._search.search([call.text], self._settings.topk, task.corpus)[0]
        place = f"{task.game}/{task.role}/{task.seed}/{next(self._calls)}"
        request = ToolRequest(call, place, self._seen, self._read_to, task.id)
        (answer,) = self._settings.tools.run([request])
        if isinstance(answer, Fault):
            raise answer
        return answer

    async def chat(self, body: Body) -> Body:
        """`POST /v1/chat/completions`. Refused for what cannot be done."""
        check(body)
        listed = body.get("messages")
        tools = tools_of(body)
        is_list = isinstance(listed, list) and all(isinstance(message, dict) for message in listed)
        if not listed or not is_list:
            raise Refused("messages is a list of messages, one at least")
        messages = [plain(message) for message in listed]
        offered = json.dumps(tools)
        async with self._turn_lock:
            before = [canon(message) for message in messages[: len(self._context)]]
            goes_on = before == [canon(message) for message in self._context]
            added = None
            if goes_on and before and offered == self._offered:
                added = self._added(messages, tools)
            text = self._rendered(messages, tools) if added is None else added
            drawn = await self._turn(text, added is None, body)
            raw = self._without_end(drawn.ids)
            calling = tools and body.get("tool_choice") != "none"
            begun = opening(text)
            said = parsed(raw, body, f"call-{self._turns}" if calling else "", bool(begun))
            own = plain(said.message)
            turn = begun + raw
            self._raw |= {canon(own): turn, canon(own, thoughts=True): turn}
            self._context = [*messages, own]
            self._offered = offered
        reason = "stop" if drawn.stopped else "length"
        if said.calls:
            reason = "tool_calls"
        choice = {"message": said.message, "finish_reason": reason}
        return self._reply("chat.completion", choice, len(drawn.ids))

    async def complete(self, body: Body) -> Body:
        """`POST /v1/completions`. A prompt goes on with its context where it begins with all that
        was read and written there."""
        check(body)
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1:
            (prompt,) = prompt
        if not isinstance(prompt, str) or not prompt:
            raise Refused("prompt is one text, and not empty")
        async with self._turn_lock:
            shown = self._renderer.decode(self.episode.log.context())
            fresh = not shown or not prompt.startswith(shown)
            drawn = await self._turn(prompt if fresh else prompt[len(shown) :], fresh, body)
            self._context = []
        text = until(self._without_end(drawn.ids), stops_of(body))
        choice = {"text": text, "finish_reason": "stop" if drawn.stopped else "length"}
        return self._reply("text_completion", choice, len(drawn.ids))

    def _reply(self, kind: str, choice: Body, written: int) -> Body:
        read = len(self.episode.log.context()) - written
        id = f"{self._task.id}-{self._turns}"
        return completion(kind, id, MODEL, choice, (read, written))

    def _rendered(self, messages: Sequence[Message], tools: list[Any], reply: bool = True) -> str:
        """The messages as the policy sees them: its own as it wrote them, others' without control
        tokens."""
        shown = []
        for message in messages:
            own = message["role"] == "assistant"
            content = self._raw.get(canon(message, thoughts=True)) if own else None
            if content is None and message.get("reasoning_content"):
                raise Refused("reasoning_content of a message: the policy did not write this")
            if content is None:
                content = self._renderer.protocol.uncontrolled(message["content"])
            shown.append({"role": message["role"], "content": content})
        try:
            return self._renderer.conversation(shown, tools, reply)
        except (InputError, AttributeError, TypeError) as error:
            # also of tools that are no objects
            raise Refused(str(error)) from error

    def _added(self, messages: list[Message], tools: list[Any]) -> str | None:
        """The text that follows the last turn, with its end; None where the template now shows what
        was before in another way."""
        known = len(self._context)
        turn = self._raw[canon(self._context[-1])]
        prompt = self._rendered(messages[: known - 1], tools)
        written = prompt.removesuffix(opening(prompt)) + turn
        closed = self._rendered(messages[:known], tools, reply=False)
        whole = self._rendered(messages, tools)
        same = closed.startswith(written) and whole.startswith(closed)
        return whole[len(written) :] if same else None

    async def _turn(self, text: str, fresh: bool, body: Body) -> Generation:
        """Append `text`, in a new context when it is `fresh`, and sample a turn. Refused when the
        episode is over, or this ends it."""
        episode, log = self.episode, self.episode.log
        # A ValueError where it has half of a surrogate pair, which no tokenizer takes.
        text.encode()
        if not fresh and log.ids[-1] in self._renderer.ends:  # which the policy has written itself
            text = self._renderer.without_end(text)
        (ids,) = self._renderer.encode([text])
        self._hold_limits(len(ids), fresh)
        # The temperature is the run's, whatever is asked for: the log-probs are those of the policy
        # that learns.
        stops = stops_of(body)
        most = self._settings.limits.turn_tokens
        most = min(tokens_of(body) or most, most)
        words = StopWords(stops, self._renderer.decode) if stops else None
        sampling = Sampling(self._settings.temperature, most, self._renderer.ends, words)
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
        # The model's own context is shorter; the engine has not read `ids`.
        if not drawn.ids and not episode.stopped:
            episode.stopped = "tokens"
        self._hold_running()
        drawn_by = drawn.version if drawn.versions is None else drawn.versions
        log.append_model(drawn.ids, drawn.logprobs, drawn_by)
        full = len(drawn.ids) == self._settings.limits.turn_tokens  # a client may ask for less
        episode.cut = full and not drawn.stopped
        return drawn

    def _hold_limits(self, added: int, fresh: bool) -> None:
        """Refused when a turn is one too many, or does not fit behind `added` tokens."""
        episode, log, limits = self.episode, self.episode.log, self._settings.limits
        context = added if fresh else added + len(log.context())
        length = max(context, (len(log) + added) // CONTEXTS)
        if not episode.stopped:
            if self._turns > limits.searches + limits.retries:
                episode.stopped = "turns"
            elif length + limits.turn_tokens > limits.total_tokens:
                episode.stopped = "tokens"
        self._hold_running()

    def _hold_running(self) -> None:
        if self.episode.stopped:
            raise Refused(f"the episode is over: {self.episode.stopped}")

    def _without_end(self, ids: Sequence[int]) -> str:
        ended = ids[-1] in self._renderer.ends
        return self._renderer.decode(ids[:-1] if ended else ids)

    def close(self) -> None:
        """Give the slot back; a turn under way is aborted."""
        self._engine.close(self._slots)

    def end(self) -> None:
        """Close it, and let the tools forget the episode."""
        self.close()
        self._settings.tools.done(self._task.id)
