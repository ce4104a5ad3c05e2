"""How messages become one text: the layouts of model families, as data."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ssp.base.errors import hold

Message = dict[str, str]

PLAIN, TOKENIZER = "plain", "tokenizer"


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


def lay_out(messages: Sequence[Message], template: str, plain: str, reply: bool = True) -> str:
    """`messages` as text, the policy's turn opened when `reply`. InputError for `tokenizer` or an
    unknown template. `plain`: a format with {system} and {user}, for base models; without a system
    text the lines that it leaves empty go. The policy's turns follow as they are, another message
    on lines of its own."""
    if template == PLAIN:
        opening = {
            "system": "",
            **{m["role"]: m["content"] for m in messages[:2] if m["role"] in ("system", "user")},
        }
        head = _HOLE.sub(lambda hole: opening.get(hole[1], ""), plain)
        later = messages[2 if opening["system"] else 1 :]
        texts = [m["content"] if m["role"] == "assistant" else f"\n{m['content']}\n" for m in later]
        return (head if opening["system"] else head.lstrip("\n")) + "".join(texts)
    rule = f"without a tokenizer, a prompt is laid out as one of {', '.join([PLAIN, *FAMILIES])}"
    hold(template in FAMILIES, rule, template, "name one of these")
    family = FAMILIES[template]
    text = family.begin
    for message in messages:
        role = family.tool if message["role"] == "tool" else message["role"]
        text += family.message.replace("{role}", role).replace("{content}", message["content"])
    return text + (family.reply if reply else "")
