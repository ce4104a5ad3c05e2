"""Small tokenizers in the manner of model families: byte-level BPE, the families' special tokens, and chat templates that
lay conversations out as theirs do (written here)."""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LINES = [
    "Answer the question. Think, then search for the city, the river and the mountain.",
    "<think> I need the capital. </think> <search> capital of France </search>",
    '\n\n<information>Doc 1(Title: "Paris") Paris is the capital of France.\n</information>\n\n',
    '{"name": "search", "arguments": {"query": "capital of France"}} <answer> Paris </answer>',
    "It was neither a search nor a result, so that it is told and tried again.",
] * 3

QWEN_TOOLS = """\
{%- macro system_text() %}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% endmacro %}
{%- if tools %}
{{- '<|im_start|>system\\n' + system_text() + '\\n\\n# Tools\\n\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
{{- '\\n</tools>\\n\\nA call is {"name": ..., "arguments": ...} between <tool_call> and </tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or message.role == 'assistant' %}
{{- '<|im_start|>' + message.role + '\\n' + TEXT + '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN = QWEN_TOOLS.replace("TEXT", "message.content")
_CALLS = "message.content }}{% for c in message.tool_calls or [] %}{{ CALL }}{% endfor %}{{ ''"
KIMI = QWEN_TOOLS.replace("TEXT", _CALLS).replace(
    "CALL",
    "'<|tool_calls_section_begin|><|tool_call_begin|>functions.' + c.function.name + ':0<|tool_call_argument_begin|>'"
    " + (c.function.arguments | tojson) + '<|tool_call_end|><|tool_calls_section_end|>'",
)
"""Calls between control strings of their own."""
PYTHONIC = QWEN_TOOLS.replace("TEXT", _CALLS).replace(
    "CALL", "'[' + c.function.name + '(' + (c.function.arguments | string) + ')]'"
)
"""Calls as Python writes them, which are not read."""
CALLS = QWEN_TOOLS.replace("TEXT", _CALLS).replace(
    "CALL", "'<tool_call>\\n' + (c.function | tojson) + '\\n</tool_call>'"
)
TRIMMING = QWEN_TOOLS.replace("TEXT", "(message.content | trim)").replace(
    "' + message.content + '", "' + (message.content | trim) + '"
)
FORGETFUL = QWEN_TOOLS.replace(
    "TEXT",
    "(message.content if loop.last or message.role == 'user' else message.content.split('</think>')[-1].lstrip('\\n'))",
)
"""As reasoning models' templates do: the thoughts of earlier turns are left out."""
NEVER_THINKS = QWEN_TOOLS.replace("TEXT", "message.content.split('</think>')[-1].lstrip('\\n')")
WITHOUT_TOOLS = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA = """\
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '\\n\\n' }}
{%- if messages[0].role == 'system' %}
{{- messages[0].content | trim }}
{%- endif %}
{{- '<|eot_id|>' }}
{%- for message in messages if message.role != 'system' %}
{%- if message.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (message.content | tojson) + '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{%- if tools and loop.first %}
{{- 'These functions can be called with {"name": ..., "parameters": ...}:\\n\\n' }}
{%- for tool in tools %}{{ (tool | tojson(indent=4)) + '\\n\\n' }}{% endfor %}
{%- endif %}
{{- (message.content | trim) + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
"""Llama 3.1's ways: today's date, trimmed texts, a tool's reply as JSON."""

ENDS_ALL = WITHOUT_TOOLS.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}")
"""Phi 3.5's way: behind a conversation that is over stands one token more."""


def byte_level(special: list[str], vocabulary: int = 330, lines: list[str] = LINES) -> Tokenizer:
    """A byte-level BPE core: `vocabulary` tokens (about 260 of them single bytes), then the special ones."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
    )
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return core


def qwen(template: str | None = QWEN, tools: bool = True, **names: str) -> PreTrainedTokenizerFast:
    """Qwen's tokens; `tools`: tool calls and thoughts are tokens too (Qwen 3). `names`: pad_token and the like."""
    core = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    if tools:
        core.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, **{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", **names}
    )
    made.chat_template = template
    made.name_or_path = "small-qwen"
    return made


def llama(template: str | None = LLAMA) -> PreTrainedTokenizerFast:
    """Llama 3's tokens; a text begins with `<|begin_of_text|>` by itself."""
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"]
    core = byte_level([*special, "<|eot_id|>", "<|python_tag|>"])
    core.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", core.token_to_id("<|begin_of_text|>"))]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>", pad_token="<|end_of_text|>"
    )
    made.chat_template = template
    made.name_or_path = "small-llama"
    return made


_QWEN3 = """\
{%- if tools %}{{ '<|im_start|>system\\n# Tools' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- set ns = namespace(asked=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif m.role != 'assistant' %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- else %}
{%- set thought = (m.content.split('</think>')[0].split('<think>')[-1] | trim) if '</think>' in m.content else '' %}
{%- set said = m.content.split('</think>')[-1].lstrip('\\n') %}
{{- '<|im_start|>assistant\\n' }}
{%- if KEEPS %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' }}{% endif %}
{{- said + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}OPENS{% endif %}"""
_EMPTY = "{{ '<think>\\n\\n</think>\\n\\n' }}"
_OPENED = "{{ '<think>\\n' }}"
_LATER = "loop.index0 > ns.asked and (loop.last or thought)"
QWEN3 = _QWEN3.replace("KEEPS", _LATER).replace(
    "OPENS", "{% if enable_thinking is defined and not enable_thinking %}" + _EMPTY + "{% endif %}"
)
"""Thoughts since the last question are kept, an empty one only in the last turn; without thoughts a turn is opened behind an
empty one."""
QWEN3P5 = _QWEN3.replace("KEEPS", "loop.index0 > ns.asked").replace(
    "OPENS",
    "{% if enable_thinking is defined and not enable_thinking %}" + _EMPTY + "{% else %}" + _OPENED + "{% endif %}",
)
"""All since the last question are kept, also empty ones; a prompt opens the thought."""
SILENT = _QWEN3.replace("KEEPS", "loop.index0 > ns.asked").replace(
    "OPENS", "{% if enable_thinking %}" + _OPENED + "{% else %}" + _EMPTY + "{% endif %}"
)
"""The small ones of Qwen 3.5 think only when they are asked to."""
AS_SAID = QWEN.replace("assistant\\n' }}{% endif %}", "assistant\\n' }}" + _OPENED + "{% endif %}")
"""Nemotron's way: a prompt opens the thought, and a turn is shown as it was said, with that."""
OWN_LINE = QWEN.replace(
    "'<|im_end|>\\n' }}\n{%- elif message.role == 'tool'", "'\\n<|im_end|>\\n' }}\n{%- elif message.role == 'tool'"
)
"""The end of a turn stands on a line of its own."""
FORGETS_OPENED = _QWEN3.replace("KEEPS", "loop.last").replace("OPENS", _OPENED)
"""R1's way: a prompt opens the thought, and no earlier one is shown."""
FORGETS_ALL_BUT_TWO = _QWEN3.replace("KEEPS", "loop.revindex < 4").replace("OPENS", "")

DEEPSEEK = """\
{{- bos_token }}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- set ns = namespace(asked=false) %}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}{% set ns.asked = true %}
{%- elif m.role == 'tool' %}{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}{% set ns.asked = false %}
{%- else %}
{%- if ns.asked %}{{ '<｜Assistant｜>' }}CLOSED{% endif %}
{{- SAID + '<｜end▁of▁sentence｜>' }}{% set ns.asked = false %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt and ns.asked %}{{ '<｜Assistant｜>' }}OPENS{% endif %}"""
"""After a tool's reply no turn is opened."""

GLM = """\
[gMASK]<sop>{% if tools %}{{ '<|system|>\\n# Tools' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{ '<|observation|>\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- elif m.role != 'assistant' %}{{ '<|' + m.role + '|>\\n' + m.content }}
{%- else %}
{{- '<|assistant|>' }}THOUGHT
{{- '\\n' + SAID }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}OPENS{% endif %}"""
"""The next message ends a turn; a thought is shown without the blanks around it."""
_GLM_THOUGHT = """\
{%- set thought = m.content.split('</think>')[0].split('<think>')[-1] if '</think>' in m.content else '' %}
{{- '\\n<think>' + (thought | trim) + '</think>' }}"""


def qwen3(template: str = QWEN3) -> PreTrainedTokenizerFast:
    """As `qwen`, of models that think."""
    return qwen(template)


def qwen3p5() -> PreTrainedTokenizerFast:
    return qwen(QWEN3P5)


def deepseek(thinks: bool = False) -> PreTrainedTokenizerFast:
    """DeepSeek V3's tokens; `thinks`: V3.1's switch."""
    marks = "User Assistant tool▁calls▁begin tool▁call▁begin tool▁sep tool▁call▁end tool▁calls▁end".split()
    marks += ["tool▁output▁begin", "tool▁output▁end", "begin▁of▁sentence", "end▁of▁sentence"]
    core = byte_level([f"<｜{mark}｜>" for mark in marks])
    core.add_tokens(["<think>", "</think>"])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<｜begin▁of▁sentence｜>",
        eos_token="<｜end▁of▁sentence｜>",
        pad_token="<｜User｜>",
    )
    opens = "{% if thinking %}{{ '<think>' }}{% else %}{{ '</think>' }}{% endif %}" if thinks else ""
    made.chat_template = DEEPSEEK.replace("CLOSED", "{{ '</think>' }}" if thinks else "").replace("OPENS", opens)
    made.chat_template = made.chat_template.replace(
        "SAID", "m.content.split('</think>')[-1]" if thinks else "m.content"
    )
    made.name_or_path = "small-deepseek"
    return made


def glm(thinks: bool = True) -> PreTrainedTokenizerFast:
    """GLM 4's tokens; `thinks`: GLM 4.5's and 4.6's switch."""
    core = byte_level(
        ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
    )
    core.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    opens = "{% if enable_thinking is defined and not enable_thinking %}{{ '\\n<think></think>' }}{% endif %}"
    made.chat_template = GLM.replace("THOUGHT", _GLM_THOUGHT if thinks else "").replace(
        "OPENS", opens if thinks else ""
    )
    made.chat_template = made.chat_template.replace(
        "SAID", "(m.content.split('</think>')[-1] | trim)" if thinks else "m.content"
    )
    made.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|observation|>"]})
    made.name_or_path = "small-glm"
    return made
