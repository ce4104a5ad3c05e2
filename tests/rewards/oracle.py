"""Second implementations of the rewards, character by character, and the generator of the texts that both are tried on.

Written from the definitions, with a scanner and lists where the package searches and splits: slow and plain.
"""

from __future__ import annotations

import random
import string
from itertools import groupby

GOLDS = ["Paris", "New York City", "yes"]
TAGS = ("think", "search", "information", "answer", "result", "observation", "tool_response")
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>")
ENDS += ("</s>", "<eos>")

_WORDS = [
    "Paris",
    "paris",
    "The",
    "a",
    "New",
    "York",
    "City",
    "yes",
    "no",
    "London",
    "1,000",
    "É",
    "İ",
    "ß",
    "中文",
    "e\u0301",
]
_ODD = [
    "\n",
    "\r\n",
    "\u2028",
    "\x00",
    "\ud800",
    "\u200d",
    "<",
    ">",
    "< >",
    "<>",
    "<b>",
    "1 < 2",
    "your query",
    "Your Answer",
]
_ODD += [
    "<answer",
    "answer>",
    "</ answer>",
    "<ANSWER>",
    "</Think>",
    "\\boxed{Paris}",
    "\\boxed{",
    "}",
    "{",
    "\\boxed{{a}",
    *ENDS,
]


# ------------------------------------------------------------------------------------------------- generated texts
def texts(count: int, seed: int) -> list[str]:
    """`count` texts: about half wild, half well-formed with up to three slips."""
    rng = random.Random(seed)
    return [_wild(rng) if rng.random() < 0.4 else _slipped(rng, _formed(rng)) for _ in range(count)]


def _some(rng: random.Random) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(rng.choice((1, 1, 2, 3))))


def _wild(rng: random.Random) -> str:
    pieces = [*(f"<{tag}>" for tag in TAGS), *(f"</{tag}>" for tag in TAGS), *_WORDS, *_ODD]
    return rng.choice(("", " ")).join(rng.choice(pieces) for _ in range(rng.randrange(30)))


def _formed(rng: random.Random) -> list[str]:
    """Blocks in Search-R1's, SSRL's and ReSearch's order, as pieces."""
    shown = rng.choice(("information", "information", "result"))
    pieces = []
    for _ in range(rng.randrange(4) if rng.random() < 0.95 else 9):
        pieces += ["<think>", _some(rng), "</think>", "<search>", _some(rng), "</search>"]
        pieces += [f"<{shown}>", _some(rng), f"</{shown}>"]
    right = rng.choice(GOLDS) if rng.random() < 0.6 else _some(rng)
    answer = [right] if rng.random() < 0.5 else ["so ", "\\boxed{", right, "}"]
    return [*pieces, "<think>", _some(rng), "</think>", "<answer>", *answer, "</answer>"]


def _slipped(rng: random.Random, pieces: list[str]) -> str:
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        at = rng.randrange(len(pieces))
        slip = rng.randrange(5)
        if slip == 0 and len(pieces) > 1:
            del pieces[at]
        elif slip == 1:
            pieces.insert(at, rng.choice(_ODD))
        elif slip == 2:
            pieces.insert(at, pieces[rng.randrange(len(pieces))])
        elif slip == 3:
            pieces.append(rng.choice((*ENDS, " ", "\n", "<eos>\n")))
        else:
            pieces = pieces[: max(1, rng.randrange(len(pieces) + 1))]
    return rng.choice(("", "\n", " ")).join(pieces)


# ------------------------------------------------------------------------------------------------------- the scanner
def scan(text: str, tags: tuple[str, ...]) -> list[str]:
    """The text as a list: tags whole, everything else one character each."""
    known = [f"<{slash}{tag}>" for tag in tags for slash in ("", "/")]
    out, i = [], 0
    while i < len(text):
        piece = text[i]
        if piece == "<":
            piece = next((tag for tag in known if text.startswith(tag, i)), piece)
        out.append(piece)
        i += len(piece)
    return out


def blocks(text: str, tag: str) -> list[str]:
    """Contents of closed blocks; an opening tag inside a block is content."""
    found: list[str] = []
    inside: list[str] | None = None
    for piece in scan(text, (tag,)):
        if inside is None:
            inside = [] if piece == f"<{tag}>" else None
        elif piece == f"</{tag}>":
            found.append("".join(inside))
            inside = None
        else:
            inside.append(piece)
    return found


ALL, SEARCH_R1 = ("information", "observation", "result", "tool_response"), ("information",)


def spoken(text: str, tags: tuple[str, ...] = ALL) -> str:
    for tag in tags:
        out: list[str] = []
        held: list[str] | None = None
        for piece in scan(text, (tag,)):
            if held is None and piece == f"<{tag}>":
                held = [piece]
            elif held is not None and piece == f"</{tag}>":
                out.append(" ")
                held = None
            else:
                (out if held is None else held).append(piece)
        text = "".join(out + (held or []))
    return text


def answer(text: str, tags: tuple[str, ...] = ALL) -> str | None:
    found = blocks(spoken(text, tags), "answer")
    return found[-1].strip() if found else None


def without_end(text: str) -> str:
    while True:
        shorter = text.rstrip()
        for end in ENDS:
            shorter = shorter.removesuffix(end)
        if shorter == text:
            return text
        text = shorter


# ------------------------------------------------------------------------------------------------------- the rewards
def normalise(text: str) -> str:
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    runs = ["".join(run) for _, run in groupby(kept, str.isalnum)]
    return " ".join("".join(" " if run in ("a", "an", "the") else run for run in runs).split())


def em(text: str, golds: list[str], tags: tuple[str, ...] = ALL) -> float:
    return 1.0 if normalise(answer(text, tags) or "") in [normalise(gold) for gold in golds] else 0.0


def sub_em(text: str, golds: list[str]) -> float:
    found = normalise(answer(text) or "")
    return 1.0 if any(found.startswith(normalise(g), i) for g in golds for i in range(len(found))) else 0.0


def token_f1(said: str, golds: list[str]) -> float:
    best = 0.0
    for gold in map(normalise, golds):
        ours, left = normalise(said).split(), gold.split()
        if ours != left and (" ".join(ours) in ("yes", "no", "noanswer") or gold in ("yes", "no", "noanswer")):
            continue
        both = 0
        for word in ours:
            if word in left:
                left.remove(word)
                both += 1
        # the harmonic mean of precision and recall, with its fractions cleared
        best = max(best, 2 * both / (len(ours) + len(gold.split())))
    return best


def f1(text: str, golds: list[str]) -> float:
    return token_f1(answer(text) or "", golds)


def searching_form(text: str) -> bool:
    """Search-R1: one letter a tag, a dot for text between; white space left out. Then read from left to right."""
    letters = {"<think>": "T", "</think>": "t", "<search>": "S", "</search>": "s"}
    letters |= {"<information>": "I", "</information>": "i", "<answer>": "A", "</answer>": "a"}
    line = "".join(letters.get(p, "" if p.isspace() else ".") for p in scan(text, TAGS[:4]))
    for pair in ("Tt", "Ss", "Ii", "Aa"):
        parts, rest = [], line
        while pair[0] in rest:
            head, _, rest = rest.partition(pair[0])
            parts.append(head + pair[0])
            rest = rest.lstrip(".")
        line = "".join(parts) + rest
    if not line.startswith("Tt"):
        return False
    line = line[2:]
    while line.startswith("SsIiTt"):
        line = line[6:]
    return line == "Aa"


def format_em(text: str, golds: list[str], s: float, f: float, r: float) -> float:
    formed = searching_form(without_end(text))
    if em(text, golds, SEARCH_R1):
        return 1.0 if formed else 1.0 - s
    if formed:
        shown = [normalise(block) for block in blocks(text, "information")]
        return s + r if any(normalise(g) in block for g in golds for block in shown) else s
    return 0.0 if answer(text, SEARCH_R1) is None else f


def box(text: str) -> str | None:
    starts = [i for i in range(len(text)) if text[i : i + 7] == "\\boxed{"]
    if not starts:
        return None
    held, depth = "", 1
    for c in text[starts[-1] + 7 :]:
        depth += (c == "{") - (c == "}")
        if depth == 0:
            return held
        held += c
    return None


def research(text: str, golds: list[str]) -> float:
    pieces = scan(text, TAGS)
    count = pieces.count
    if count("<think>") != count("</think>") or count("<think>") == 0:
        return 0.0
    if count("<answer>") != 1 or count("</answer>") != 1:
        return 0.0
    at = 0
    while "<search>" in pieces[at:]:
        at = pieces.index("<search>", at)
        following = pieces[at:]
        if "</search>" not in following or "<result>" not in following:
            return 0.0
        ends, shown = following.index("</search>"), following.index("<result>")
        if ends > shown or "</result>" not in following[shown:]:
            return 0.0
        at += following.index("</result>", shown)
    found = blocks(text, "answer")
    said = box(found[0]) if found else None
    return 0.0 if said is None else token_f1(said, golds) or 0.1


def recalling_form(text: str) -> float:
    """SSRL."""
    text = without_end(text).strip()
    i = 0
    while i < len(text):
        if text[i] == "<" and ">" in text[i + 1 :] and text[i + 1] != ">":
            inside = text[i + 1 : text.index(">", i)]
            if inside.removeprefix("/") not in TAGS[:4] or inside.startswith("//"):
                return 0.0
            i = text.index(">", i)
        i += 1
    for tag, copied in zip(TAGS, ("your thoughts", "your query", "your information", "your answer"), strict=False):
        for block in blocks(text, tag):
            if block.strip() == "" or copied in block.lower() or (tag == "search" and block.count("\n")):
                return 0.0
    tags = [piece for piece in scan(text, TAGS[:4]) if len(piece) > 1]
    if len(tags) < 4 or text[:7] != "<think>" or text[-9:] != "</answer>":
        return 0.0
    if tags[:2] != ["<think>", "</think>"] or tags[-2:] != ["<answer>", "</answer>"]:
        return 0.0
    inner = tags[2:-2]
    while inner:
        if inner[0] == "<search>":
            if inner[1:4] != ["</search>", "<information>", "</information>"]:
                return 0.0
            inner = inner[3:]
        inner = inner[1:]
    t, s = tags.count("<think>"), tags.count("<search>")
    if s != tags.count("<information>") or t > 8:
        return 0.0
    balance = t / (s + 1) if t < s + 1 else (s + 1) / t
    return balance * (0.5 if t == 1 else 1.0)


def ssp(text: str, golds: list[str], judged: bool | None) -> float:
    pieces = scan(text, ("answer",))
    spam = pieces.count("<answer>") >= 11 or pieces.count("</answer>") >= 11
    return (0.25 if spam else 1.0) if em(text, golds) == 1.0 or judged else 0.0
