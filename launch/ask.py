"""`ssp ask "vene mayor birthplace ?"`: questions to a policy, their transcripts live and in colours."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from launch import policy
from launch.cli import Parsed, Parser, parse, temperature
from launch.records import transcript
from ssp.base.episode import SOLVER, Episode, Outcome, Task
from ssp.base.errors import InputError
from ssp.base.printable import say
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.game import corpora, protocols
from ssp.game.protocols import Protocol
from ssp.game.rollout.table import Told
from ssp.selfplay.workers import build
from ssp.telemetry.terminal import Terminal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SETTING = re.compile(r"[\w.]+=\S*")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when the episode of the question that was typed is void."""
    parsed, question = _arguments(sys.argv[1:] if argv is None else argv)
    named = policy.parse(parsed.flags)
    cfg = named.config(parsed.flags.config, parsed.overrides)
    threads.use(threads.alone(cfg))
    console = Terminal(soft_wrap=True)
    ask = _asker(cfg, parsed, named, console)
    if question is not None:
        return 1 if ask(question).outcome is Outcome.VOID else 0
    while (question := _typed()) is not None:
        try:
            ask(question)
        except InputError as error:
            say(error, file=sys.stderr)
    return 0


def _asker(cfg: Config, parsed: Parsed, named: policy.Policy, console: Console) -> Callable[[str], Episode]:
    """Question → its episode, shown while it is played. The parts are made once."""
    args = parsed.flags
    corpus = args.corpus or (cfg.data.eval[0].corpus if cfg.data.eval else cfg.data.corpus)
    folder = named.folder(cfg)
    heat = cfg.eval.temperature if args.temperature is None else args.temperature
    tokenizer = build.tokenizer(folder)
    told = teller(console, protocols.get(cfg.protocol))
    play = build.player(cfg, SOLVER, folder, corpora.search(cfg, [corpus]), heat, told)

    def ask(question: str) -> Episode:
        _check_words(tokenizer, question)
        seed = derive(cfg.seed, "ask", question)
        (episode,) = play([Task("ask", "ask", SOLVER, 0, seed, {"question": question}, corpus)])
        console.print(transcript.outcome(episode))
        return episode

    return ask


def teller(console: Console, protocol: Protocol) -> Told:
    """What prints each piece of an episode as the rollout tells it."""

    def told(episode: Episode, kind: Kind, text: str) -> None:
        console.print(transcript.piece(protocol, episode.role, kind, text))

    return told


def _typed() -> str | None:
    """The next question from the terminal, None at the end of the input."""
    try:
        return input("question> " if sys.stdin.isatty() else "")
    except EOFError:
        return None


def _arguments(argv: Sequence[str]) -> tuple[Parsed, str | None]:
    """What was typed, and the question among it (None: none)."""
    parsed = parse(argv, "ask", "Ask a policy a question; without one, ask for questions.", _flags)
    settings = [word for word in parsed.overrides if _SETTING.fullmatch(word)]
    questions = [word for word in parsed.overrides if not _SETTING.fullmatch(word)]
    if len(questions) > 1:
        raise InputError("ssp ask takes one question", " ".join(questions), "put it in quotation marks")
    return replace(parsed, overrides=settings), questions[0] if questions else None


def _flags(parser: Parser) -> None:
    policy.add_flags(parser)
    parser.add_argument(
        "--corpus", help="corpus to search in; default: that of the first evaluation set, else data.corpus"
    )
    parser.add_argument("--temperature", type=temperature, help="0 is greedy; default: eval.temperature")


def _check_words(tokenizer: PreTrainedTokenizerBase, question: str) -> None:
    """InputError for a question that the policy could not read."""
    if not question.split():
        raise InputError("a question has at least one word", "none", "type one")
    try:
        build.check_words(tokenizer, [question])
    except TypeError as error:  # half of a surrogate pair: the terminal sent bytes that are no text
        raise InputError("a question is valid Unicode", repr(question), "type it in UTF-8") from error


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
