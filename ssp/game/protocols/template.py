"""How messages become one text: the layouts of model families, as data."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ssp.base.errors import hold

Message = dict[str, str]

PLAIN, TOKENIZER = "plain", "tokenizer"
CHATS = {TOKENIZER: None, "thinking": True, "direct": False}
"""Layouts by the model's own chat template → whether it is asked for thoughts; None: not said."""
THINK = "<think>"
THOUGHT = re.compile(r".*</think>\n*", re.DOTALL)
"""What a turn begins with, up to the end of its last thought."""


@dataclass(frozen=True)
class Family:
    """`begin` opens the text, `message` lays out one, `reply` opens the policy's turn, `end` closes
    a turn."""

    begin: str
    message: str
    reply: str
    end: str
    tool: str = "tool"


FAMILIES = {
    "chatml": Family(
        "", "<|im_start|>{role}\n{content}<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>"
    ),
    "llama3": Family(
        "<|begin_of_text|>",
        "<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
        tool="ipython",
    ),
}
"""Qwen's and Llama 3's layouts, as their model cards give them."""

ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>")
"""End-of-turn and end-of-text strings of these families."""

CONTROL = r"<[|｜][^<>|｜\s]{1,64}[|｜]>|</?s>|<(?:start|end)_of_turn>|<[be]os>|<</?SYS>>|\[(?:/?INST|TOOL_CALLS)\]"
"""Pattern of model families' control strings, those of `ENDS` among them; no text of a document or
a reply keeps one."""

_HOLE = re.compile(r"\{(system|user)\}")


def opening(prompt: str) -> str:
    """What `prompt` opens of a thought at its end; "" for nothing."""
    return prompt[prompt.rindex(THINK) :] if prompt.rstrip().endswith(THINK) else ""


def behind(prompt: str, shown: str) -> str:
    """What `shown` has behind `prompt`, from where the two differ, a tag whole."""
    common = os.path.commonprefix([prompt, shown])
    if common.rfind("<") > common.rfind(">"):
        common = common[: common.rfind("<")]
    return shown.removeprefix(common)


_TOOLS = """You may call these functions. Write a call as <tool_call> {"name": NAME, "arguments": {...}} </tool_call>."""


def telling(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]], system: bool
) -> list[Message]:
    """`messages` for a layout that shows no tools: the first one tells of them, as the system's
    where there may be one (`system`), and users tell what they gave."""
    shown = list(messages)
    if tools:
        forms = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
        told = "\n".join([_TOOLS, *forms])
        teller = "system" if system else "user"
        if shown[0]["role"] == teller:
            told = f"{shown.pop(0)['content']}\n\n{told}"
        shown.insert(0, {"role": teller, "content": told})
    for at, message in enumerate(shown):
        if message["role"] == "tool":
            content = f"<tool_response>\n{message['content']}\n</tool_response>"
            shown[at] = {"role": "user", "content": content}
    return shown


def lay_out(messages: Sequence[Message], template: str, plain: str, reply: bool = True) -> str:
    """`messages` as text; with `reply` the policy's turn is opened behind them. InputError for
    `tokenizer` or an unknown template.

    `plain`: a format with {system} and {user}, for base models. Without a system text the lines
    that it leaves empty go. The policy's turns follow as they are, another message on lines of its
    own."""
    if template == PLAIN:
        return _lay_out_plain(messages, plain)
    rule = f"without a tokenizer, a prompt is laid out as one of {', '.join([PLAIN, *FAMILIES])}"
    hold(template in FAMILIES, rule, template, "name one of these")
    family = FAMILIES[template]
    text = family.begin
    for message in messages:
        role = family.tool if message["role"] == "tool" else message["role"]
        text += family.message.replace("{role}", role).replace("{content}", message["content"])
    return text + family.reply if reply else text


def _lay_out_plain(messages: Sequence[Message], plain: str) -> str:
    opening = {"system": "", "user": ""}
    for message in messages[:2]:
        if message["role"] in opening:
            opening[message["role"]] = message["content"]
    text = _HOLE.sub(lambda hole: opening[hole[1]], plain)
    later = messages[2:]
    if not opening["system"]:
        text = text.lstrip("\n")
        later = messages[1:]
    for message in later:
        own = message["role"] == "assistant"
        text += message["content"] if own else f"\n{message['content']}\n"
    return text
