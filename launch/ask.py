"""`ssp ask "vene mayor birthplace ?"`: one question to a policy, its transcript in colours.

Owns the command and the colours. Promises the rollout and the parser of training (law 8), so what is shown is what is
trained on. Refuses to judge the answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.text import Text

from launch.cli import DEFAULT_CONFIG, Parser
from ssp import build, config, protocols
from ssp.config.rules import COLDEST
from ssp.episode import SOLVER, Episode, Outcome, Task
from ssp.errors import InputError
from ssp.protocols import Protocol
from ssp.seeds import derive

STYLES = {
    "q": "bold",
    "search": "cyan",
    "information": "dim",
    "think": "yellow",
    "answer": "bold green",
    "question": "bold magenta",
    "target": "bold",
}
"""Segment kind → rich style; other kinds are shown plain."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when the episode is void."""
    args = _arguments(sys.argv[1:] if argv is None else argv)
    cfg = config.load(args.config, args.overrides)
    torch.set_num_threads(1)
    corpus = args.corpus or (cfg.data.eval[0].corpus if cfg.data.eval else cfg.data.corpus)
    folder = build.policy_dir(cfg, args.policy)
    _check_words(folder, args.question)
    temperature = cfg.eval.temperature if args.temperature is None else args.temperature
    play = build.player(cfg, SOLVER, folder, build.search(cfg, [corpus]), temperature)
    seed = derive(cfg.seed, "ask", args.question)
    (episode,) = play([Task("ask", "ask", SOLVER, 0, seed, {"question": args.question}, corpus)])
    console = Console(highlight=False)
    console.print(transcript(episode, protocols.get(cfg.protocol)))
    return 1 if episode.outcome is Outcome.VOID else 0


def transcript(episode: Episode, protocol: Protocol) -> Text:
    """The episode's segments, one a line, then what came of it."""
    shown = Text()
    for segment in protocol.parse(episode.text):
        cut = "" if segment.closed else "  (cut off)"
        shown.append(f"{segment.kind:>11}  {segment.text}{cut}\n", style=STYLES.get(segment.kind, ""))
    if episode.outcome is Outcome.VOID:
        shown.append(f"void: {episode.cause}", style="bold red")
    elif episode.final is None:
        shown.append(f"no answer ({episode.stopped}), {len(episode.queries)} searches", style="bold red")
    else:
        shown.append(f"answer: {episode.final} ({len(episode.queries)} searches)", style="bold green")
    return shown


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("ask", "Ask a policy one question.")
    parser.add_argument("question", help='generated world: an entity, relations, a question mark: "vene mayor ?"')
    parser.add_argument(
        "--config", default=DEFAULT_CONFIG, metavar="NAME|FILE", help="shipped config's name, or a file"
    )
    parser.add_argument(
        "--policy", metavar="DIR", help="policy folder or run folder; default: the solver's start model"
    )
    parser.add_argument(
        "--corpus", help="corpus to search in; default: that of the first evaluation set, else data.corpus"
    )
    parser.add_argument("--temperature", type=_temperature, help="0 is greedy; default: eval.temperature")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings typed over the config's")
    return parser.parse_intermixed_args(list(argv))


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (value == 0.0 or COLDEST <= value < float("inf")):
        raise argparse.ArgumentTypeError(f"0 or a number of at least {COLDEST}, not {text}")
    return value


def _check_words(folder: object, question: str) -> None:
    """InputError when the policy's vocabulary has no token for a word: it would be asked about `<unk>` instead."""
    tokenizer = build.tokenizer(str(folder))
    unknown = tokenizer.unk_token_id
    try:
        words = [w for w in question.split() if unknown is not None and unknown in tokenizer.encode(w)]
    except TypeError as error:  # half of a surrogate pair: the terminal sent bytes that are no text
        raise InputError("a question is valid Unicode", repr(question), "type it in UTF-8") from error
    if words or not question.split():
        shown = ", ".join(dict.fromkeys(words[:5])) + (", ..." if len(words) > 5 else "")
        raise InputError(
            "a question is made of words that the policy knows",
            shown or "no word",
            "take a question of the corpus's own words; the evaluation file has examples",
        )


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
