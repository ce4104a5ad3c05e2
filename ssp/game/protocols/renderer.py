"""A protocol in one model's tokens: prompts, observations and stops as ids. A log goes on after a
turn as the chat template would go on. A template may forget the thoughts of earlier turns; one that
rewrites them in another way is refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ssp.base.episode import Document
from ssp.base.errors import InputError, hold
from ssp.engines.base import StopWords
from ssp.game.protocols.bare import DATE, decode
from ssp.game.protocols.base import HOLE, Protocol
from ssp.game.protocols.calls import SEARCH, TOOL, called, written
from ssp.game.protocols.template import (
    CHATS,
    ENDS,
    FAMILIES,
    PLAIN,
    THINK,
    THOUGHT,
    TOKENIZER,
    Message,
    behind,
    lay_out,
    opening,
    telling,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "zqxv"
"""A word that no template writes: where it stands, a message's content went."""

_WAY_OUT = (
    f"set template to {PLAIN} (base models) or one of {', '.join(FAMILIES)}, or take another model"
    " or protocol"
)
_AS_TEXT = "take a protocol that shows searches as text (search-r1), or another model"
"""What to do instead, the second for a protocol whose tools the chat template shows."""


def _said(text: str) -> Message:
    """A turn of the policy."""
    return {"role": "assistant", "content": text}


class Renderer:
    """`protocol` in the tokens of `tokenizer`.

    `template`: plain, chatml, llama3, or the model's own as `CHATS` has it; "" is the protocol's.
    `ends`: ids that end the policy's turn. `opening`: what a prompt opens of a thought. `forgets`:
    what leaves the context when a message follows a turn: so many tokens before the turn, and
    whether its thoughts; None for nothing. InputError where `template` needs a chat template, a
    switch or a token that the tokenizer has not, and for a template that rewrites turns."""

    def __init__(
        self, protocol: Protocol, tokenizer: PreTrainedTokenizerBase, template: str = ""
    ) -> None:
        self.protocol, self.tokenizer = protocol, tokenizer
        self.template = template or protocol.template
        self._name = tokenizer.name_or_path or "a model without a name"
        self._bos = ""
        self._switches: dict[str, bool] = {}
        if self.template in CHATS:
            rule = f"template={self.template} needs a tokenizer with a chat template"
            chat_template = getattr(tokenizer, "chat_template", None)
            hold(chat_template, rule, f"none in {self._name}", _WAY_OUT)
            self._switch(CHATS[self.template])
        elif self.template in FAMILIES:
            end = FAMILIES[self.template].end
            (ids,) = self.encode([end])
            rule = f"template={self.template} needs a model with its tokens"
            hold(len(ids) == 1, rule, f"no {end} in {self._name}", "set another template")
        elif self.template == PLAIN and getattr(tokenizer, "bos_token", None):
            # Base models saw in training what the tokenizer puts before every text.
            if tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]:
                self._bos = str(tokenizer.bos_token)
        self._prove()

    def prompt(self, role: str, fields: dict[str, str]) -> str:
        """The prompt of `role`, the policy's turn opened."""
        return self._bos + self._text(self.protocol.messages(role, fields))

    def least(self, role: str) -> int:
        """Tokens of the prompt of `role` about nothing."""
        spoken = self.protocol.role(role)
        empty = dict.fromkeys(HOLE.findall(spoken.system + spoken.user), "")
        (ids,) = self.encode([self.prompt(role, {**empty, **self.protocol.fields})])
        return len(ids)

    def observation(self, *results: Sequence[Document]) -> str:
        """What follows a turn's searches, one result list a query, where the turn ended as it
        should."""
        text = self.protocol.observation(*results)
        return "".join(self.framed(text, self.protocol.observation_form.as_turn))

    def retry(self, role: str) -> str:
        """What an invalid turn of `role` is told, without its frame."""
        return self.protocol.retry.replace("{final}", self.protocol.role(role).final)

    def last(self, role: str) -> str:
        """What `role` is told where only one more turn fits. InputError where the tokenizer cannot
        write it."""
        text = self.protocol.last.replace("{final}", self.protocol.role(role).final)
        (ids,) = self.encode([text])
        if getattr(self.tokenizer, "unk_token_id", None) in ids:
            raise self._unwritten("a word of `last`")
        return text

    def framed(self, text: str, ended: bool) -> tuple[str, str, str]:
        """`text` as the layout shows it after the policy's turn: what stands before it, the text,
        what opens the next turn. `ended`: the turn's last token is one of `ends`; else the turn
        goes on, unless `text` is a message of its own."""
        if not self.protocol.observation_form.as_turn:
            return (self._reopened if ended else ""), text, ""
        before, after = self._frame
        reply: Message = {"role": "tool", "content": text.strip()}
        shown = self._text([*self._said, reply])[self._length :]
        shown = shown[len(before) : len(shown) - len(after)]
        return (self.without_end(before) if ended else before), shown, after

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], reply: bool
    ) -> str:
        """Any messages as the layout shows them; with `reply` the next turn is opened. InputError
        for what it cannot show.

        Where it shows no tools, a message of the system tells of them, and the user's messages tell
        what they gave."""
        if self.shows_tools:
            return self._bos + self._text(messages, reply, tools)
        shown = telling(messages, tools, self._takes_system)
        return self._bos + self._text(shown, reply)

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the layout shows tools that are offered."""
        if self.template not in CHATS:
            return False
        empty: Message = {"role": "user", "content": ""}
        try:
            return TOOL in self._text([empty], True, [SEARCH.function])
        except InputError:
            return False

    def stops(self, role: str, searching: bool = True) -> tuple[tuple[int, ...], StopWords | None]:
        """What ends a turn: ids (the end of turn, and stop strings of one token), and the other
        stop strings. InputError when the tokenizer has no tokens for these, or for the role's
        prompt."""
        spoken = self.protocol.role(role)
        if spoken.system and not self._takes_system:
            raise self._unfit(f"it shows no system message, as the {role}'s prompt has one")
        (prompt,) = self.encode([HOLE.sub(" ", f"{spoken.system} {spoken.user}")])
        if getattr(self.tokenizer, "unk_token_id", None) in prompt:
            raise self._unwritten(f"a word of the {role}'s prompt")
        ids = list(self.ends)
        words = []
        for stop in self.protocol.stops(role, searching):
            encoded, begun = self.encode([stop, stop[:-1]])
            if stop not in self.decode(encoded):
                raise self._unwritten(stop)
            if len(encoded) == 1:
                ids.append(encoded[0])
            # A stop of one token can also be written letter by letter.
            if len(encoded) > 1 or stop[:-1] in self.decode(begun):
                words.append(stop)
        return tuple(dict.fromkeys(ids)), StopWords(words, self.decode) if words else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text as it is, no special token added."""
        return self.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []

    def decode_all(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of each."""
        return [self.decode(row) for row in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """See `decode`."""
        return decode(self.tokenizer, ids)

    def _text(
        self,
        messages: Sequence[Message],
        reply: bool = True,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> str:
        """`messages` as the layout shows them. `tools`: those that a chat template is told of; None
        are the protocol's."""
        if self.template not in CHATS:
            return lay_out(messages, self.template, self.protocol.plain, reply)
        if tools is None and self.protocol.offers_tool:
            tools = [offer.function for offer in (SEARCH, *self.protocol.offers)]
        offered: Any = list(tools) if tools else None
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages),
                tools=offered,
                tokenize=False,
                add_generation_prompt=reply,
                date_string=DATE,
                **self._switches,
            )
        except Exception as error:  # jinja's errors, and whatever a template raises by itself
            roles = [message["role"] for message in messages]
            raise self._unfit(f"it cannot lay out {roles}: {error}") from error
        return str(text)

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the layout shows a message of the system."""
        both: list[Message] = [{"role": who, "content": _MARK} for who in ("system", "user")]
        try:
            return self._text(both).count(_MARK) > 1
        except InputError:
            return False

    def _switch(self, thinks: bool | None) -> None:
        """Ask the chat template for thoughts, or for none. InputError where it has no switch."""
        if thinks is None:
            return
        asked: list[Message] = [{"role": "user", "content": _MARK}]
        shown = []
        for on in (not thinks, thinks):
            # Qwen and GLM have the first name, DeepSeek the second.
            self._switches = {"enable_thinking": on, "thinking": on}
            shown.append(self._text(asked))
        rule = f"template={self.template} needs a chat template with a switch for thinking"
        step = f"set template={TOKENIZER}"
        hold(shown[0] != shown[1], rule, f"none in {self._name} (enable_thinking)", step)

    def _prove(self) -> None:
        """Find out how the layout shows a turn and what follows it. InputError when it rewrites a
        turn, but for its thoughts."""
        asked: list[Message] = [{"role": "user", "content": _MARK}]
        spoken = self.protocol.roles.values()
        if any(role.system for role in spoken) and self._takes_system:
            asked.insert(0, {"role": "system", "content": _MARK})
        opened = self._text(asked)
        self.opening = opening(opened) if self.template in CHATS else ""

        thought, call = self._probe(opened)
        closed = self._text([*asked, _said(thought + call)], reply=False)
        shown = closed.rpartition(call)[0].removeprefix(opened)
        alike = _MARK in shown if thought else not shown.strip()
        if alike and closed.startswith(opened + shown + call):
            thought = shown  # as the layout itself writes one
        else:
            thought = thought.removeprefix(self.opening)
        own = (self.opening + thought).lstrip()  # GLM 4's layout adds a line break
        self._said: list[Message] = [*asked, _said(own + call)]
        closed = self._text(self._said, reply=False)
        before, call, tail = closed.rpartition(call)
        if not call:
            raise self._unfit("what the policy wrote is not what the template shows of its turn")
        self._length = len(before + call)
        self.ends = self._ends(tail)
        self.forgets: tuple[int, bool] | None = None
        self._reopened, self._frame = "", ("", "")
        if self.protocol.observation_form.as_turn:
            self._prove_reply(opened, thought, call, tail)
        elif before != opened + thought:
            raise self._unfit("what the policy wrote is not what the template shows of its turn")
        elif self.protocol.retry:
            self._reopened = self.without_end(self._after(self._said, closed))

    def _prove_reply(self, opened: str, thought: str, call: str, tail: str) -> None:
        """Find out how a tool's reply follows a turn of `thought` and `call`, which `opened` opens
        and `tail` ends."""
        reply: Message = {"role": "tool", "content": _MARK * 2}
        told = self._text([*self._said, reply])
        before, _, rest = told.rpartition(call)
        if not rest.startswith(tail):
            raise self._unfit("it rewrites a turn when another message follows")
        frame, mark, after = rest.partition(_MARK * 2)
        if not mark:
            raise self._unfit("it does not show a tool's reply")
        rule = (
            f"protocol {self.protocol.id} needs a chat template that shows the tools a policy is"
            " offered"
        )
        step = (
            "take a protocol that shows searches as text (search-r1), or a model with tools and"
            f" template={TOKENIZER}"
        )
        shows = TOOL in opened or not self.protocol.offers_tool
        hold(shows, rule, f"{self._name} with template={self.template}", step)
        self._frame = frame, after
        self._length = len(before + call)
        if not tail.strip():  # what opens the next message ends a turn
            user: Message = {"role": "user", "content": _MARK * 2}
            asked_on = self._text([*self._said, user]).rpartition(call)[2]
            self.ends = self._ends(frame, asked_on.partition(_MARK * 2)[0])

        left = opened.removeprefix(before)
        kept = told + thought
        if before != opened + thought:
            if not opened.startswith(before) or self._end_of(thought + call) != len(thought):
                raise self._unfit("it rewrites a turn when another message follows")
            ids, gone = self.encode([opened, left])
            if ids[len(ids) - len(gone) :] != gone:
                raise self._unfit("what it forgets of a turn's opening is no whole tokens")
            self.forgets = len(gone), bool(thought)
            kept = told.removesuffix(left)
        again = self._text([*self._said, reply, self._said[-1], reply])
        if again != kept + call + rest:
            raise self._unfit("it rewrites a turn when more messages follow")

        if not self.protocol.offers_tool:
            return
        # How the layout shows a call must be read, or its model would search in vain.
        query = _MARK * 2
        try:
            shown = self._text([*self._said[:-1], called(query)], reply=False)
        except InputError:  # it takes calls in another form, or none
            shown = ""
        wrote = behind(opened, shown)
        for end in self.ends:
            wrote = wrote.partition(self.decode([end]))[0]
        rule = (
            f"under protocol {self.protocol.id} a call of a tool is JSON, or in the tags of Qwen,"
            " GLM, DeepSeek or Kimi"
        )
        unread = query in wrote and self.protocol.queries(wrote) != (query,)
        hold(not unread, rule, f"{self._name} writes {wrote.strip()[:200]!r}", _AS_TEXT)

    @staticmethod
    def _end_of(turn: str) -> int:
        """Where the thoughts of `turn` end; 0 where it has none."""
        thought = THOUGHT.match(turn)
        return thought.end() if thought else 0

    def forgotten(self, turn: str) -> int:
        """Characters at the begin of `turn` that leave the context when a message follows."""
        return self._end_of(turn) if self.forgets and self.forgets[1] else 0

    def _after(self, messages: Sequence[Message], closed: str) -> str:
        """What the layout shows of `messages` after the policy's turn, which must stay as it was
        but for a token that ends the whole text."""
        text = self._text(messages)
        whole = closed.removesuffix(self.tokenizer.eos_token or "")
        if len(whole) > self._length:
            closed = whole
        if not text.startswith(closed):
            raise self._unfit("it rewrites a turn when another message follows")
        return text[self._length :]

    def _probe(self, opened: str) -> tuple[str, str]:
        """A thought, where the protocol has a tag for one and the prompt `opened` wants it, and a
        search, as a policy of this protocol writes them: templates of reasoning models may drop the
        thought."""
        search = self.protocol.search
        body = written(_MARK, search.form)
        if search.form == "tool":
            body = f"\n{body}\n"
        direct = CHATS.get(self.template) is False or opened.rstrip().endswith("</think>")
        thinks = "think" in self.protocol.kinds and not direct
        thought = f"{THINK}\n{_MARK}\n</think>\n\n" if thinks else ""
        return thought, f"<{search.tag}>{body}</{search.tag}>"

    def _ends(self, *tails: str) -> tuple[int, ...]:
        """Ids that end the policy's turn: the layout's in `tails`, the protocol's own, every
        family's, the eos."""
        special = set(self.tokenizer.all_special_ids)
        ends: dict[int, None] = {}
        for text in (*map(str.strip, tails), self.protocol.end, *ENDS):
            ids = self.encode([text])[0] if text else []
            first = self.decode(ids[:1]).strip()
            if first and text.startswith(first) and (ids[0] in special or first == text):
                ends[ids[0]] = None
        eos = self.tokenizer.eos_token_id
        if isinstance(eos, int):
            ends[eos] = None
        return tuple(ends)

    def without_end(self, text: str) -> str:
        """`text` without the end of turn that it begins with, which the policy samples, as it does
        the blanks before it."""
        begun = text.lstrip()
        (ids,) = self.encode([begun])
        if not ids or ids[0] not in self.ends:
            return text
        return begun.removeprefix(self.decode(ids[:1]))

    def _unwritten(self, what: str) -> InputError:
        rule = f"the words of protocol {self.protocol.id} can be written in the model's tokens"
        step = "use a model or a protocol made for the other"
        return InputError(rule, f"{what} cannot ({self._name})", step)

    def _unfit(self, why: str) -> InputError:
        rule = f"a chat template must be prefix-stable under protocol {self.protocol.id}"
        step = _AS_TEXT if self.protocol.offers_tool else _WAY_OUT
        return InputError(rule, f"{self._name}: {why}", step)
