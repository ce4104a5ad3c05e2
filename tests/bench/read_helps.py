"""How much the tool `read` helps where the answer stands beyond what a search shows: accuracy with it minus without it.

    python tests/bench/read_helps.py             # 3 seeds, two policies each, one core

A document of the generated world gets a sentence for each of the twelve relations, shuffled, nine or ten of them filler; a search
shows the first four of these, a third. Two policies a seed, of one size, begun with the same weights and taught alike on
scripted traces: `with` searches, says `none` and reads on as long as it does not see the fact, and answers; `without` searches, says
what it sees, and guesses a name of the right kind where it does not see it. Both play 200 questions of one and of two hops, greedy,
in a world that neither was taught in. Prints a line a seed and arm, and one line `RESULT {json}`: accuracy; `shown`, that on
questions whose facts the searches show; `script`, what the script gets right; searches and reads an episode; `nothing found`,
accuracy when searches find nothing (about 0, else an answer leaks); `taken away`, that of `with` when its reads show nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
import torch  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from tokenizers.pre_tokenizers import WhitespaceSplit  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM  # noqa: E402

from ssp.base.episode import SOLVER, Document, Episode, Task  # noqa: E402
from ssp.base.errors import Fault  # noqa: E402
from ssp.base.seeds import derive, generator  # noqa: E402
from ssp.config.role import LimitsConfig  # noqa: E402
from ssp.engines.torch_engine import TorchEngine  # noqa: E402
from ssp.game import protocols  # noqa: E402
from ssp.game.protocols.renderer import Renderer  # noqa: E402
from ssp.game.rollout import Settings, rollout  # noqa: E402
from ssp.game.rollout.tools import READ, Runs, ToolRequest, Tools  # noqa: E402
from ssp.game.world import World, WorldQuestion  # noqa: E402
from ssp.game.world import vocabulary as words  # noqa: E402
from ssp.game.world.vocabulary import FIRST_NAME_ID, NAME_COUNT, NONE, RELATIONS, SCHEMA, STOP, VOCABULARY  # noqa: E402
from ssp.search.shard import in_memory  # noqa: E402
from tests.bench.coldstart import mediocre, teach  # noqa: E402
from tests.bench.coldstart.mediocre import Trace  # noqa: E402
from tests.localsearch import local  # noqa: E402

SENTENCE, WINDOW = 4, 5
"""Tokens of a sentence, and sentences that an observation has room for."""
LIMITS = LimitsConfig(searches=10, observation_tokens=2 + SENTENCE * WINDOW, prompt_tokens=40, total_tokens=480)
PROTOCOLS = {"with": protocols.get("mini").offering([READ]), "without": protocols.get("mini")}
TOLD = PROTOCOLS["with"].render(SOLVER, {"question": ""}).split()
WORDS = tuple(dict.fromkeys([*VOCABULARY, *TOLD, "</read>"]))
"""The world's vocabulary, then what a policy hears of `read`."""
IDS = {word: i for i, word in enumerate(WORDS)}
WORLDS, EASY, BLOCKS, SOLVED = 4, 2000, 1500, 750
"""Worlds of the lessons; easy traces, blocks, and traces of play a world and length."""
BATCH_TOKENS = 4096
EASY_SHARE = 0.2
"""Of the steps: short documents and one-hop questions on them, before the traces of play."""
HOPS, QUESTIONS = (1, 2), 200

Sample = teach.Sample
KINDS = {relation: kind for relations in SCHEMA.values() for relation, kind in relations.items()}


class LongWorld:
    """`world` with long documents. `sentences`: name → what its document says, in order."""

    def __init__(self, seed: int) -> None:
        self.world, self.rng = World(seed), generator(seed, "long")
        self.members = {kind: [n for n, of in self.world.types.items() if of == kind] for kind in SCHEMA}
        self.sentences = {name: self._sentences(name) for name in self.world.entities}

    def _sentences(self, name: str) -> list[str]:
        facts = dict(self.world.facts[name])
        for relation in RELATIONS:  # filler never names what a fact names
            free = [other for other in self.members[KINDS[relation]] if other not in (name, *facts.values())]
            facts.setdefault(relation, self.pick(free))
        said = [f"{name} {relation} {facts[relation]} {STOP}" for relation in RELATIONS]
        return [
            f"{name} {words.ARTICLE} {self.world.types[name]} {STOP}",
            *(said[i] for i in self.rng.permutation(len(said))),
        ]

    def pick(self, names: Sequence[Any]) -> Any:
        """One of them."""
        return names[int(self.rng.integers(len(names)))]

    def documents(self) -> list[Document]:
        """The corpus."""
        rows = zip(self.world.documents(), self.sentences.items(), strict=True)
        return [replace(short, contents=f'"{name}"\n{" ".join(said)}') for short, (name, said) in rows]

    def place(self, name: str, relation: str) -> int:
        """In which window of the document the fact stands; a search shows window 0."""
        return next(i for i, said in enumerate(self.sentences[name]) if said.split()[1] == relation) // WINDOW

    def trace(self, arm: str, question: WorldQuestion) -> tuple[Trace, str]:
        """How the script plays, and what it answers. A guess is not trained: what is shown is then learned without noise."""
        trace, (name, *relations) = Trace(f"{arm}{question.hops}"), question.text.split()[:-1]
        trace.add(PROTOCOLS[arm].render(SOLVER, {"question": question.text}), wrote=False)
        for relation in relations:
            at = self.place(name, relation)
            trace.add(f"<search> {name} </search>")
            self._see(trace, name, 0)
            for window in range(at + 1) if at and arm == "with" else ():  # the first read shows the beginning again
                trace.add(f"<think> {name} {relation} {NONE} </think> <read> {name} </read>")
                self._see(trace, name, window)
            trace.add(f"<think> {name} {relation}")
            guesses = at > 0 and arm == "without"
            name = self.pick(self.members[KINDS[relation]]) if guesses else self.world.facts[name][relation]
            trace.add(name, wrote=not guesses)
            trace.add("</think>")
        trace.add(f"<answer> {name} </answer>")
        return trace, name

    def _see(self, trace: Trace, name: str, window: int) -> None:
        said = self.sentences[name][window * WINDOW : (window + 1) * WINDOW]
        trace.add(f"<information> {' '.join(said)} </information>", wrote=False)


class Silent:
    """In place of the tools: shows nothing."""

    def run(self, asked: Sequence[ToolRequest]) -> list[list[Document] | Fault]:
        """See `Runs`."""
        return [[] for _ in asked]

    def done(self, episode: str) -> None:
        """See `Runs`."""


class Exam:
    """Plays in a held-out world."""

    def __init__(self, seed: int) -> None:
        self.long = LongWorld(derive(seed, "read", "held out"))
        self.full = local(teach.CORPUS, in_memory(self.long.documents()))
        self.empty = local(teach.CORPUS, in_memory([Document("none", '"none"\nnone')]))
        self.asked = {hops: self.long.world.questions(hops, QUESTIONS, seed) for hops in HOPS}

    def results(self, model: Qwen2ForCausalLM, arm: str, hops: int) -> dict[str, float]:
        """What the policy of this arm comes to on all questions of so many hops; see above."""
        asked = self.asked[hops]
        episodes, right = self._play(model, arm, hops)
        shown = np.array([all(self.long.place(name, rel) == 0 for name, rel, _ in q.chain) for q in asked])
        reads = np.mean([sum(tool == READ.name for tool in episode.tools) for episode in episodes])
        found = {
            "accuracy": right.mean(),
            "shown": right[shown].mean(),
            "script": np.mean([self.long.trace(arm, q)[1] == q.answer for q in asked]),
            "searches": np.mean([len(episode.queries) for episode in episodes]) - reads,
            "reads": reads,
            "nothing found": self._play(model, arm, hops, empty=True)[1].mean(),
        }
        if arm == "with":
            found["taken away"] = self._play(model, arm, hops, tools=Silent())[1].mean()
        return {name: round(float(value), 4) for name, value in found.items()}

    def _play(
        self, model: Qwen2ForCausalLM, arm: str, hops: int, empty: bool = False, tools: Runs | None = None
    ) -> tuple[list[Episode], npt.NDArray[np.bool_]]:
        engine = TorchEngine(model.config.to_dict(), device="cpu")
        engine.load({name: weight.detach().numpy() for name, weight in model.named_parameters()}, 1)
        tasks = [
            Task(f"q{i}", "exam", SOLVER, 0, i, {"question": question.text}, teach.CORPUS)
            for i, question in enumerate(self.asked[hops])
        ]
        settings = Settings(LIMITS, 0.0, teach.TOPK, tools=tools or Tools(reads=arm == "with"))
        renderer, search = Renderer(PROTOCOLS[arm], tokenizer()), self.empty if empty else self.full
        episodes, _ = rollout(engine, renderer, search, tasks, settings)
        right = [e.final == q.answer for e, q in zip(episodes, self.asked[hops], strict=True)]
        return episodes, np.array(right)


def tokenizer() -> PreTrainedTokenizerFast:
    """Of the longer vocabulary; one word, one token."""
    core = Tokenizer(WordLevel(IDS, unk_token=words.UNKNOWN))
    core.pre_tokenizer = WhitespaceSplit()
    special = {"pad_token": words.PAD, "unk_token": words.UNKNOWN, "eos_token": words.END}
    return PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **special)


def sample_of(trace: Trace) -> Sample:
    """Ids, and which of them the policy wrote."""
    said = [(IDS[word], wrote) for text, wrote in trace.pieces for word in text.split()]
    return np.array([i for i, _ in said]), np.array([wrote for _, wrote in said])


def lessons(arm: str, seed: int) -> tuple[list[Sample], list[Sample]]:
    """The easy traces, and the mix: play of both lengths, and blocks of questions on short documents."""
    makers = mediocre.makers(seed)
    longs = [LongWorld(derive(seed, "read", "world", i)) for i in range(WORLDS)]
    mix = [makers[i % len(makers)].block(mediocre.QUESTIONS_A_BLOCK) for i in range(BLOCKS)]
    for hops in HOPS:
        mix += [long.trace(arm, asked)[0] for long in longs for asked in long.world.questions(hops, SOLVED, seed)]
    return [sample_of(trace) for trace in mediocre.curriculum(makers, EASY)], [sample_of(trace) for trace in mix]


def batches(samples: Sequence[Sample], rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (ids [N, T], mask [N, T]) of samples about as long, names permuted a sample."""
    groups: list[list[Sample]] = [[]]
    for i in sorted(rng.permutation(len(samples)), key=lambda i: len(samples[i][0])):
        if groups[-1] and (len(groups[-1]) + 1) * len(samples[i][0]) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(samples[i])
    while True:
        for i in rng.permutation(len(groups)):
            shape = len(groups[i]), max(len(ids) for ids, _ in groups[i])
            out, masks = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
            for row, (ids, mask) in enumerate(groups[i]):
                renamed = np.arange(len(WORDS))
                renamed[FIRST_NAME_ID : FIRST_NAME_ID + NAME_COUNT] = FIRST_NAME_ID + rng.permutation(NAME_COUNT)
                out[row, : len(ids)], masks[row, : len(ids)] = renamed[ids], mask
            yield torch.from_numpy(out), torch.from_numpy(masks)


def train(arm: str, seed: int, steps: int) -> Qwen2ForCausalLM:
    """A policy of the arm; both arms of a seed begin with the same weights."""
    model = teach.build(derive(seed, "read", "model"))
    model.resize_token_embeddings(len(WORDS), mean_resizing=False)
    drawn = generator(seed, "read", "words").normal(0, teach.INIT_STD, (len(WORDS) - len(VOCABULARY), teach.HIDDEN))
    with torch.no_grad():
        model.model.embed_tokens.weight[len(VOCABULARY) :] = torch.from_numpy(drawn).float()
    made = lessons(arm, seed)
    streams = [batches(samples, generator(seed, "read", i)) for i, samples in enumerate(made)]
    hidden = [w for name, w in model.named_parameters() if w.ndim == 2 and "embed" not in name]
    rest = [w for name, w in model.named_parameters() if w.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(hidden, lr=teach.MUON_LR, momentum=teach.MUON_MOMENTUM, weight_decay=0.0),
        torch.optim.AdamW(rest, lr=teach.ADAMW_LR, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [(group, group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]
    for step in range(steps):
        loss = teach.nll(model, *next(streams[step >= EASY_SHARE * steps]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), teach.CLIP)
        for group, peak in peaks:
            group["lr"] = peak * min((step + 1) / teach.WARMUP, max(1 - step / steps, teach.FLOOR))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 100 == 0:
            print(f"  {arm} {seed}, step {step + 1}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
    return model


def main() -> int:
    """All seeds and arms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=800)
    given = parser.parse_args()
    torch.set_num_threads(1)
    told: dict[str, list[float]] = {}
    for seed in given.seeds:
        exam = Exam(seed)
        for arm in PROTOCOLS:
            began = time.perf_counter()
            model = train(arm, seed, given.steps)
            line = [f"seed {seed} {arm:7} (taught in {time.perf_counter() - began:.0f} s)"]
            for hops in HOPS:
                results = exam.results(model, arm, hops)
                line.append(f"{hops} hop: " + ", ".join(f"{name} {value:.3f}" for name, value in results.items()))
                for name, value in results.items():
                    told.setdefault(f"{arm}, {hops} hop, {name}", []).append(value)
            print("; ".join(line), flush=True)
    means = {name: round(float(np.mean(values)), 4) for name, values in told.items()}
    arms = {(arm, hops): np.array(told[f"{arm}, {hops} hop, accuracy"]) for arm in PROTOCOLS for hops in HOPS}
    differences = {f"{k} hop": (arms["with", k] - arms["without", k]).round(4).tolist() for k in HOPS}
    print("RESULT", json.dumps({"differences": differences, "means": means, "steps": given.steps}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
