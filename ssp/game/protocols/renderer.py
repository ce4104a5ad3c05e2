"""A protocol spoken through one model's tokenizer: prompts, observations and stops as token ids.
What is appended to a log after a turn is what the chat template would put there; a template that
rewrites earlier turns is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ssp.base.episode import Document
from ssp.base.errors import InputError, hold
from ssp.engines.base import StopWords
from ssp.game.protocols.base import HOLE, Protocol
from ssp.game.protocols.calls import SEARCH, TOOL, written
from ssp.game.protocols.template import ENDS, FAMILIES, PLAIN, TOKENIZER, Message, lay_out

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "zqxv"
"""A word that no template writes by itself: it shows where a message's content went."""

_DATE = "26 Jul 2024"
"""What templates that tell today's date are told (Llama 3.1's own default): a prompt is the same
tomorrow."""

_TOOLS = """You may call these functions. Write a call as <tool_call> {"name": NAME, "arguments": {...}} </tool_call>."""

_WAY_OUT = (
    f"set template to {PLAIN} (base models) or one of {', '.join(FAMILIES)}, or take another model"
    " or protocol"
)


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Text of `ids`, special tokens included; spaces are never cleaned up: " ?" must stay what the
    policy wrote."""
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


def ask(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of `text` as the one message of a user, by the tokenizer's chat template. Without a
    template: of `text` with the tokens that the tokenizer puts before every text."""
    if not tokenizer.chat_template:
        return list(tokenizer.encode(text))
    messages = [{"role": "user", "content": text}]
    shown = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, date_string=_DATE
    )
    return list(tokenizer.encode(str(shown), add_special_tokens=False))


class Renderer:
    """`protocol` in the words of `tokenizer`. `template`: plain, chatml, llama3, tokenizer; "" is
    the protocol's own. `ends`: ids that end the policy's turn. InputError when the tokenizer has no
    chat template or one that is not prefix-stable, or when it has no token for the end of turn of
    the family's layout."""

    def __init__(
        self, protocol: Protocol, tokenizer: PreTrainedTokenizerBase, template: str = ""
    ) -> None:
        self.protocol, self.tokenizer = protocol, tokenizer
        self.template = template or protocol.template
        self._name = tokenizer.name_or_path
        lacks = self.template == TOKENIZER and not getattr(tokenizer, "chat_template", None)
        hold(
            not lacks,
            "template=tokenizer needs a tokenizer with a chat template",
            f"none in {self._name}",
            _WAY_OUT,
        )
        if self.template in FAMILIES and len(self.encode([FAMILIES[self.template].end])[0]) != 1:
            rule = f"template={self.template} needs a model with its tokens"
            raise InputError(
                rule, f"no {FAMILIES[self.template].end} in {self._name}", "set another template"
            )
        # What the tokenizer puts before every text of its own accord, as base models saw it in
        # training.
        begin = getattr(tokenizer, "bos_token", None) if self.template == PLAIN else None
        self._bos = (
            begin if begin and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id] else ""
        )
        self._prove()

    def prompt(self, role: str, fields: dict[str, str]) -> str:
        """The prompt of `role`, the policy's turn opened."""
        return self._bos + self._text(self.protocol.messages(role, fields))

    def observation(self, *results: Sequence[Document]) -> str:
        """What follows a turn's searches, one result list a query, when the turn ended as it
        should."""
        return "".join(
            self.framed(self.protocol.observation(*results), self.protocol.observation_form.as_turn)
        )

    def retry(self, role: str) -> str:
        """What an invalid turn of `role` is told, without its frame."""
        return self.protocol.retry.replace("{final}", self.protocol.role(role).final)

    def framed(self, text: str, ended: bool) -> tuple[str, str, str]:
        """`text` as the layout shows it after the policy's turn: what stands before it, itself,
        what opens the next turn. `ended`: the turn's last token is one of `ends`; else it goes on,
        unless `text` is a message of its own."""
        if not self.protocol.observation_form.as_turn:
            return (self._reopened if ended else ""), text, ""
        shown = self._text([*self._said, {"role": "tool", "content": text.strip()}])[self._length :]
        before, after = self._frame
        shown = shown[len(before) : len(shown) - len(after)]
        return (self.without_end(before) if ended else before), shown, after

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], reply: bool
    ) -> str:
        """Any messages as the layout shows them, the next turn opened when `reply`. Tools, and what
        they gave, that a chat template does not show are told in a message of the system, and by
        the user. InputError for what it cannot show."""
        shown = list(messages)
        if tools and not self.shows_tools:
            forms = "\n".join(
                json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools
            )
            told = f"{_TOOLS}\n{forms}"
            teller = "system" if self._takes_system else "user"
            first = shown[0]["content"] + "\n\n" if shown[0]["role"] == teller else ""
            shown[: bool(first)] = [{"role": teller, "content": first + told}]
        for at, message in enumerate(shown):
            if message["role"] == "tool" and not self.shows_tools:
                shown[at] = {
                    "role": "user",
                    "content": f"<tool_response>\n{message['content']}\n</tool_response>",
                }
        return self._bos + self._text(shown, reply, list(tools) if self.shows_tools else None)

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the layout shows tools that are offered."""
        try:
            return self.template == TOKENIZER and TOOL in self._text(
                [{"role": "user", "content": ""}], True, [SEARCH.function]
            )
        except InputError:
            return False

    def stops(self, role: str, searching: bool = True) -> tuple[tuple[int, ...], StopWords | None]:
        """What ends a turn: ids (the end of turn, and stop strings that are one token), and the
        other stop strings. InputError when the tokenizer has no tokens for these, or for the role's
        prompt."""
        spoken = self.protocol.role(role)
        if spoken.system and not self._takes_system:
            raise self._unfit(f"it shows no system message, as the {role}'s prompt has one")
        (prompt,) = self.encode([HOLE.sub(" ", f"{spoken.system} {spoken.user}")])
        if getattr(self.tokenizer, "unk_token_id", None) in prompt:
            raise self._unwritten(f"a word of the {role}'s prompt")
        ids, words = list(self.ends), []
        for stop in self.protocol.stops(role, searching):
            encoded, begun = self.encode([stop, stop[:-1]])
            if stop not in self.decode(encoded):
                raise self._unwritten(stop)
            if len(encoded) == 1:
                ids.append(encoded[0])
            # it can also be written letter by letter
            if len(encoded) > 1 or stop[:-1] in self.decode(begun):
                words.append(stop)
        return tuple(dict.fromkeys(ids)), StopWords(words, self.decode) if words else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text as it is, no special token added."""
        return self.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []

    def decode_all(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of each."""
        rows = [list(row) for row in ids]
        return self.tokenizer.batch_decode(
            rows, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )

    def decode(self, ids: Sequence[int]) -> str:
        """See `decode`."""
        return decode(self.tokenizer, ids)

    def _text(
        self,
        messages: Sequence[Message],
        reply: bool = True,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> str:
        if self.template != TOKENIZER:
            return lay_out(messages, self.template, self.protocol.plain, reply)
        offered: Any = list(tools) if tools else None
        if self.protocol.offers_tool and tools is None:
            offered = [offer.function for offer in (SEARCH, *self.protocol.offers)]
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages),
                tools=offered,
                tokenize=False,
                add_generation_prompt=reply,
                date_string=_DATE,
            )
        except Exception as error:  # jinja's errors, and whatever a template raises by itself
            raise self._unfit(
                f"it cannot lay out {[m['role'] for m in messages]}: {error}"
            ) from error
        return str(text)

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the layout shows a message of the system."""
        try:
            return (
                self._text([{"role": who, "content": _MARK} for who in ("system", "user")]).count(
                    _MARK
                )
                > 1
            )
        except InputError:
            return False

    def _prove(self) -> None:
        """Find out how the layout shows a turn and what follows it. InputError when it is not
        prefix-stable."""
        system = any(role.system for role in self.protocol.roles.values()) and self._takes_system
        asked: list[Message] = [
            {"role": who, "content": _MARK} for who in ("system", "user")[not system :]
        ]
        turn = self._probe()
        self._said: list[Message] = [*asked, {"role": "assistant", "content": turn}]
        opened, closed = self._text(asked), self._text(self._said, reply=False)
        if not closed.startswith(opened + turn):
            raise self._unfit("what the policy wrote is not what the template shows of its turn")
        self._length = len(opened + turn)
        self.ends = self._ends(closed[self._length :])
        self._reopened, self._frame = "", ("", "")
        if not self.protocol.observation_form.as_turn:
            if self.protocol.retry:
                self._reopened = self.without_end(self._after(self._said, closed))
            return
        told = self._after([*self._said, {"role": "tool", "content": _MARK * 2}], closed)
        before, mark, after = told.partition(_MARK * 2)
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
        hold(
            not self.protocol.offers_tool or TOOL in opened,
            rule,
            f"{self._name} with template={self.template}",
            step,
        )
        self._frame = before, after

    def _after(self, messages: Sequence[Message], closed: str) -> str:
        """What `messages` show after the policy's turn, which must stay as it was."""
        text = self._text(messages)
        if not text.startswith(closed):
            raise self._unfit("it rewrites a turn when another message follows")
        return text[self._length :]

    def _probe(self) -> str:
        """A turn as a policy of this protocol writes it; reasoning models' templates treat
        reasoning apart."""
        form = self.protocol.search
        body = written(_MARK, form.form)
        body = f"\n{body}\n" if form.form == "tool" else body
        thought = f"<think>\n{_MARK}\n</think>\n\n" if "think" in self.protocol.kinds else ""
        return f"{thought}<{form.tag}>{body}</{form.tag}>"

    def _ends(self, tail: str) -> tuple[int, ...]:
        """Ids that end the policy's turn: what the layout puts there, the protocol's own, every
        family's, the eos."""
        special = set(self.tokenizer.all_special_ids)
        found = []
        for text in (tail.strip(), self.protocol.end, *ENDS):
            ids = self.encode([text])[0] if text else []
            first = self.decode(ids[:1]).strip()
            if first and text.startswith(first) and (ids[0] in special or first == text):
                found.append(ids[0])
        eos = self.tokenizer.eos_token_id
        return tuple(dict.fromkeys([*found, *([eos] if isinstance(eos, int) else [])]))

    def without_end(self, text: str) -> str:
        """`text` without the end of turn that opens it: the policy samples that itself."""
        (ids,) = self.encode([text])
        return text.removeprefix(self.decode(ids[:1])) if ids and ids[0] in self.ends else text

    def _unwritten(self, what: str) -> InputError:
        rule = f"the words of protocol {self.protocol.id} can be written in the model's tokens"
        return InputError(
            rule, f"{what} cannot ({self._name})", "use a model or a protocol made for the other"
        )

    def _unfit(self, why: str) -> InputError:
        rule = f"a chat template must be prefix-stable under protocol {self.protocol.id}"
        return InputError(rule, f"{self._name}: {why}", _WAY_OUT)
