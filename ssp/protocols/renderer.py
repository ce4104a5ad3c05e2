"""A protocol spoken through one model's tokenizer: prompts, observations and stops as token ids.

Owns the chat template, the end of turn of the model's family, and the proof that both fit a token log. Promises that what
is appended to a log after a turn is what the template would put there (prefix-stable), and refuses a template that
rewrites earlier turns. Refuses to know engines and episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ssp.engines.base import StopWords
from ssp.episode import Document
from ssp.errors import InputError
from ssp.protocols.base import Protocol
from ssp.protocols.calls import TOOL
from ssp.protocols.template import ENDS, FAMILIES, PLAIN, TOKENIZER, Message, lay_out

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "zqxv"
"""A word that no template writes by itself: it shows where a message's content went."""

TOOLS: list[dict[Any, Any]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Searches the document collection and returns the passages that fit best.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "what to look for, in a few words"}},
                "required": ["query"],
            },
        },
    }
]


class Renderer:
    """`protocol` in the words of `tokenizer`. `template`: plain, chatml, llama3, tokenizer; "" is the protocol's own.

    InputError when the tokenizer has no chat template, or has one that is not prefix-stable.
    """

    def __init__(self, protocol: Protocol, tokenizer: PreTrainedTokenizerBase, template: str = "") -> None:
        self.protocol, self.tokenizer = protocol, tokenizer
        self.template = template or protocol.template
        if self.template == TOKENIZER and not getattr(tokenizer, "chat_template", None):
            raise InputError(
                "template=tokenizer needs a tokenizer with a chat template",
                f"none in {tokenizer.name_or_path}",
                f"set template to {PLAIN} (base models) or one of {', '.join(FAMILIES)}",
            )
        tail, before, after = self._prove()
        self.ends = self._ends(tail)
        self._around = self._without_end(before), after

    def prompt(self, role: str, fields: dict[str, str]) -> str:
        """The prompt of `role`, the policy's turn opened."""
        return self._text(self.protocol.messages(role, fields))

    def observation(self, *results: Sequence[Document]) -> str:
        """What follows a turn's searches, one result list a query."""
        return self._after_turn(self.protocol.observation(*results))

    def retry(self) -> str:
        """What an invalid turn is told."""
        return self._after_turn(self.protocol.retry)

    def stops(self, role: str, searching: bool = True) -> tuple[tuple[int, ...], StopWords | None]:
        """What ends a turn: ids (the end of turn, and stop strings that are one token), and the other stop strings."""
        ids, words = list(self.ends), []
        for stop in self.protocol.stops(role, searching):
            (encoded,) = self.encode([stop])
            if stop not in self.decode(encoded):
                raise InputError(
                    f"every stop string of protocol {self.protocol.id} can be written in the model's tokens",
                    f"{stop} cannot",
                    "use a model that was made for this protocol",
                )
            if len(encoded) == 1:
                ids.append(encoded[0])
            else:
                words.append(stop)
        return tuple(dict.fromkeys(ids)), StopWords(words, self.decode) if words else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text as it is, no special token added."""
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
        return ids

    def decode_all(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of each."""
        texts: list[str] = self.tokenizer.batch_decode(
            [list(row) for row in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return texts

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens included; spaces are never cleaned up: " ?" must stay what the policy wrote."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _text(self, messages: Sequence[Message], reply: bool = True) -> str:
        if self.template != TOKENIZER:
            return lay_out(messages, self.template, self.protocol.plain, reply)
        tools: Any = TOOLS if self.protocol.search.form == "tool" else None
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=reply
            )
        except Exception as error:  # jinja's errors, and whatever a template raises by itself
            raise self._unfit(f"it cannot lay out {[m['role'] for m in messages]}: {error}") from error
        return str(text)

    def _after_turn(self, text: str) -> str:
        """`text` inside the policy's turn, or as a message of its own between two of its turns."""
        before, after = self._around
        return before + text + after

    def _prove(self) -> tuple[str, str, str]:
        """What closes the policy's turn, and what stands before (that included) and after a message that follows it.

        InputError when the template is not prefix-stable.
        """
        asked: list[Message] = [{"role": "user", "content": _MARK}]
        said = self._probe()
        answered: list[Message] = [*asked, {"role": "assistant", "content": said}]
        opened, closed = self._text(asked), self._text(answered, reply=False)
        if not closed.startswith(opened + said):
            raise self._unfit("what the policy wrote is not what the template shows of its turn")
        tail = closed[len(opened + said) :]
        if not self.protocol.observation_form.as_turn:
            return tail, "", ""
        if self.template == PLAIN:
            return tail, "\n", "\n"
        told = self._text([*answered, {"role": "tool", "content": _MARK * 2}])
        if not told.startswith(closed):
            raise self._unfit("it rewrites a turn when another message follows")
        before, mark, after = told[len(opened + said) :].partition(_MARK * 2)
        if not mark:
            raise self._unfit("it does not show a tool's reply")
        if self.template == TOKENIZER and TOOL not in opened.replace(_MARK, ""):
            raise self._unfit("it does not show the tools that a policy is offered")
        return tail, before, after

    def _probe(self) -> str:
        """A turn as a policy of this protocol writes it; reasoning models' templates treat reasoning apart."""
        form = self.protocol.search
        body = f'\n{{"name": "{TOOL}", "arguments": {{"query": "{_MARK}"}}}}\n' if form.form == "tool" else _MARK
        thought = f"<think>\n{_MARK}\n</think>\n\n" if "think" in self.protocol.kinds else ""
        return f"{thought}<{form.tag}>{body}</{form.tag}>"

    def _ends(self, tail: str) -> tuple[int, ...]:
        """Ids that end the policy's turn: what the layout puts there, the protocol's own, every family's, the eos."""
        special = set(self.tokenizer.all_special_ids)
        found = []
        for text in (tail.strip(), self.protocol.end, *ENDS):
            ids = self.encode([text])[0] if text else []
            first = self.decode(ids[:1]).strip()
            if first and text.startswith(first) and (ids[0] in special or first == text):
                found.append(ids[0])
        eos = self.tokenizer.eos_token_id
        return tuple(dict.fromkeys([*found, *([eos] if isinstance(eos, int) else [])]))

    def _without_end(self, text: str) -> str:
        """`text` without the end of turn that opens it: the policy samples that itself."""
        (ids,) = self.encode([text])
        return text.removeprefix(self.decode(ids[:1])) if ids and ids[0] in self.ends else text

    def _unfit(self, why: str) -> InputError:
        return InputError(
            f"a chat template must be prefix-stable under protocol {self.protocol.id}",
            f"{self.tokenizer.name_or_path}: {why}",
            f"set template to one of {', '.join((PLAIN, *FAMILIES))}, or repair the template",
        )
