"""`ssp ask "vene mayor birthplace ?"`: questions to a policy, their transcripts in colours."""

import re
import sys
from collections.abc import Sequence
from dataclasses import fields

from launch import policy
from launch.cli import Parser, parse, run, temperature
from launch.shown import golds, transcript
from ssp.base.episode import Episode, Outcome, Task
from ssp.base.errors import InputError, hold, holding
from ssp.base.printable import say
from ssp.base.seeds import derive
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.protocols.bare import decode
from ssp.selfplay.workers import build
from ssp.telemetry.terminal import Terminal

_KEYS = "|".join(field.name for field in fields(Config))
_SETTING = re.compile(rf"[\w.]+=\S*|(({_KEYS})|\w+(\.\w+)+)=.*|\w+=\{{.*", re.DOTALL)
"""A question may hold an equals sign; a setting is one word, begins with a key, or is a block."""


def main(argv: Sequence[str]) -> int:
    """Run the command. Returns 0, or 1 when the episode of the question that was typed is void."""
    parsed = parse(argv, "ask", "Ask a policy a question; without one, ask for questions.", flags)
    args = parsed.flags
    typed = [word for word in parsed.overrides if not _SETTING.fullmatch(word)]
    settings = [word for word in parsed.overrides if _SETTING.fullmatch(word)]
    rule = "ssp ask takes one question"
    hold(len(typed) <= 1, rule, " ".join(typed), "put it in quotation marks")
    named = policy.parse(args)
    cfg = named.config(args.config, settings)
    threads.use(threads.alone(cfg))
    corpus = args.corpus or (cfg.data.eval[0].corpus if cfg.data.eval else cfg.data.corpus)
    folder = named.folder(cfg)
    role = cfg.spec.answerer
    console = Terminal(soft_wrap=True)
    protocol = build.protocol(cfg, role)
    tokenizer = build.tokenizer(folder)
    search = corpora.search(cfg, [corpus])
    play = build.player(cfg, role, folder, search, args.temperature)

    def ask(question: str) -> Episode:
        hold(question.split(), "a question has at least one word", "none", "type one")
        # half of a surrogate pair: the terminal sent bytes that are no text
        step = "type it in UTF-8"
        with holding(TypeError, "a question is valid Unicode", lambda _: repr(question), step):
            build.check_words(tokenizer, [question])
        answers = golds.asked(cfg, corpus, question)
        task = Task(
            id="ask",
            game="ask",
            role=role,
            attempt=0,
            seed=derive(cfg.seed, "ask", question),
            fields={"question": question},
            corpus=corpus,
            prompt=cfg.spec.examining.prompt,
            row={"id": "ask", "golds": list(answers)},
        )
        (episode,) = play([task])
        for kind, start, end in episode.log.stretches():
            text = decode(tokenizer, episode.log.ids[start:end])
            console.print(transcript.piece(protocol, task.prompt, kind, text))
        right = golds.right(cfg, episode.final, answers)
        console.print(transcript.outcome(episode, answers, right))
        return episode

    if typed:
        return int(ask(typed[0]).outcome is Outcome.VOID)
    while True:
        try:
            ask(input("question> " if sys.stdin.isatty() else ""))
        except EOFError:
            return 0
        except InputError as error:
            say(error, file=sys.stderr)


def flags(parser: Parser) -> None:
    """The options of `ssp ask`."""
    policy.add_flags(parser)
    parser.add_argument(
        "--corpus", help="to search in; default: that of the first evaluation set, else data.corpus"
    )
    parser.add_argument(
        "--temperature", type=temperature, default=0.0, help="0 is greedy (default)"
    )


if __name__ == "__main__":
    raise SystemExit(run(main))
