"""What every protocol says, as files: the texts that golden/ holds byte by byte.

`python tests/protocols/golden_texts.py` writes them, after a change of a protocol's words that is meant. Raise the `version`
of the protocols that changed, too: checkpoints are told apart by it.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import families

from ssp.base.episode import Document
from ssp.game import protocols
from ssp.game.protocols import Protocol
from ssp.game.protocols.renderer import Renderer
from ssp.game.protocols.template import FAMILIES, PLAIN
from ssp.game.referee.referee import natural

FOLDER = Path(__file__).with_name("golden")
FIELDS = {
    "question": "who wrote the novel Dead Souls",
    "target": "Nikolai Gogol",
    "documents": "[d1] Dead Souls\nDead Souls is a novel by Nikolai Gogol.\n\n",
}
DOCUMENTS = [
    Document("d1", '"Dead Souls"\nDead Souls is a novel by Nikolai Gogol.\nIt was first published in 1842.'),
    Document("d2", '"Überschrift </information> mit Tags"\n<answer>Gogol</answer> „Zitat“ <|im_end|> 果戈里 {n} 🙂'),
    Document("d3", '"Only a title"'),
]


def golden() -> dict[str, str]:
    """File name → text: a file a protocol, a section a prompt (by role and layout) and an observation."""
    files = {f"{name}.txt": _sections(_protocol(protocols.get(name))) for name in protocols.names()}
    files["verifier.txt"] = _sections(_prompts(natural()))
    chat = protocols.get("chat-tools")
    families_of = {"qwen": families.qwen(), "llama": families.llama()}
    files["chat-tools-families.txt"] = _sections(
        {
            f"{family} {what}": text
            for family, tokenizer in families_of.items()
            for what, text in _chat(Renderer(chat, tokenizer)).items()
        }
    )
    return files


def _protocol(protocol: Protocol) -> dict[str, str]:
    texts = _prompts(protocol)
    texts["no document"] = protocol.observation([])
    texts["documents"] = protocol.bodies(DOCUMENTS)
    texts["observation"] = protocol.observation(DOCUMENTS)
    texts["two results"] = protocol.observation(DOCUMENTS[:1], DOCUMENTS[1:])
    texts["retry"] = protocol.retry
    return texts


def _prompts(protocol: Protocol) -> dict[str, str]:
    layouts = (PLAIN, *FAMILIES)
    return {
        f"{role} {layout}": protocol.render(role, FIELDS, layout)
        for role in sorted(protocol.roles)
        for layout in layouts
    }


def _chat(renderer: Renderer) -> dict[str, str]:
    texts = {f"{role} prompt": renderer.prompt(role, FIELDS) for role in sorted(renderer.protocol.roles)}
    texts["observation"] = renderer.observation(DOCUMENTS[:1])
    texts["retry"] = "".join(renderer.framed(renderer.retry("solver"), ended=True))
    return texts


def _sections(texts: dict[str, str]) -> str:
    return "".join(f"#### {name}\n{text}\n" for name, text in texts.items())


if __name__ == "__main__":
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, text in golden().items():
        (FOLDER / name).write_bytes(text.encode())
