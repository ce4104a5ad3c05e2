"""`ssp bank RUN --ask QUESTION`: a banked question, asked again of another policy: what would have come of it."""

from __future__ import annotations

from argparse import Namespace

from rich.console import Console
from rich.text import Text

from launch import policy
from launch.records import transcript
from ssp.base.episode import SOLVER, Outcome, Task
from ssp.base.seeds import derive
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.judge import Item
from ssp.game.rewards.proposer import win_rate
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions.records import Record
from ssp.selfplay.workers import build


def ask(console: Console, args: Namespace, run: RunFolder, record: Record) -> int:
    """Play the question, show answers and win rate; 0, or 1 when too few attempts were scored for one."""
    typed = args.policy or args.model or args.tokenizer
    named = policy.parse(args) if typed else policy.Policy(run.path, trusted=args.trust_code)
    banked = RunReader(run, args.trust_code).cfg
    cfg = played_in(named.config(None, []), banked)
    threads.use(threads.alone(cfg))
    folder = named.folder(cfg)
    build.check_words(build.tokenizer(folder), [record.question])
    play = build.player(cfg, SOLVER, folder, corpora.search(cfg, [corpora.TRAIN]), cfg.solver.sampling.temperature)
    seeds = [derive(cfg.seed, "bank", record.id, attempt) for attempt in range(cfg.game.attempts)]
    fields = {"question": record.question}
    episodes = play([Task(f"{record.id}a{i}", record.id, SOLVER, i, seed, fields) for i, seed in enumerate(seeds)])
    items = [Item(record.question, record.answers, episode.final) for episode in episodes]
    decided = build.judge(cfg).decide(items)
    rights = [
        None if e.outcome is Outcome.VOID else decision.right for e, decision in zip(episodes, decided, strict=True)
    ]
    console.print(Text(f"{record.question}  → {' | '.join(record.answers)}", style="bold"))
    for episode, right in zip(episodes, rights, strict=True):
        word = {True: "right", False: "wrong", None: "void"}[right]
        console.print(transcript.outcome(episode).append(f", {word}", style="none"))
    rate = win_rate(rights, len(rights))
    shown = "unknown" if rate is None else f"{rate:.2f}"
    console.print(f"win rate {shown} of {sum(right is not None for right in rights)} by {named.shown(folder)}")
    known = ", ".join(f"{before:.2f} (version {version})" for version, before in record.history)
    console.print(f"on record: {known or 'none'}")
    return 1 if rate is None else 0


def played_in(cfg: Config, banked: Config) -> Config:
    """The policy's configuration in the run's world: what is searched, how, who judges, how many attempts."""
    cfg.retriever, cfg.judge = banked.retriever, banked.judge
    cfg.data.corpus, cfg.game.attempts = banked.data.corpus, banked.game.attempts
    return cfg
