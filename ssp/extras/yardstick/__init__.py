"""The yardstick: a run's questions, asked again of one policy that never changes: what the run's
solver started from.

The yardstick's own rate falls when questions become harder; the run's solver rises above it on the
same questions when it becomes better. Rollout, corpus, search, judge and attempts are the run's
(law 8), draws depend on the seed and the question alone, voids are in no rate, and the ledger is
not touched. Intervals count questions."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ssp.base.episode import REPLAYED, Outcome, Task
from ssp.base.errors import hold
from ssp.base.files import whole
from ssp.base.intervals import Estimate, of_shares
from ssp.base.seeds import derive, generator
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.data.readers import Question
from ssp.game import corpora
from ssp.game.judge import Item
from ssp.game.rewards.proposer import win_rate
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum.figures import AskedQuestion, read
from ssp.selfplay.questions.files import answered
from ssp.selfplay.questions.records import identify
from ssp.selfplay.workers import build
from ssp.telemetry.terminal import table

QUESTIONS = 8
"""How many questions of a round are asked at most."""
ENOUGH = 2
"""With fewer questions a round is left out."""

Ask = Callable[[Sequence[Question]], Sequence[float | None]]
"""Plays questions by the yardstick's policy. Returns the solve rate of each, None when too few
attempts were scored."""


class YardstickRound(NamedTuple):
    """One round: how many of its questions have a rate of both, the rate of the run's own solver on
    them, and the yardstick's."""

    step: int
    questions: int
    own: Estimate
    yardstick: Estimate


def command(console: Console, run: RunFolder, every: int, trusted: bool) -> int:
    """`ssp bank RUN --yardstick`: ask what the solver started from, write the file, and show the
    table."""
    cfg = RunReader(run, trusted).cfg
    threads.use(threads.alone(cfg))
    start = build.model_dir(cfg, cfg.spec.answerer, run)
    points = leave(run, asker(cfg, start), str(start), every)

    rows = []
    for point in points:
        both = [f"{one.mean:.2f} ({one.low:.2f} to {one.high:.2f})" for one in point[2:]]
        rows.append((str(point.step), str(point.questions), *both))
    console.print(f"yardstick: {start}")
    console.print(table(("round", "questions", "the run's solver", "yardstick"), rows))
    console.print(f"{run.yardstick}: shown by ssp board")
    return 0


def chosen(
    rounds: Iterable[tuple[int, Sequence[AskedQuestion]]], every: int, number: int, seed: int
) -> dict[int, list[AskedQuestion]]:
    """Step → at most `number` of its played questions, drawn: of the first round, and of every
    `every`-th."""
    drawn: dict[int, list[AskedQuestion]] = {}
    for step, asked in rounds:
        played = [one for one in asked if one.rate is not None and one.kind != REPLAYED]
        if played and (step % every == 0 or not drawn):
            order = generator(seed, "yardstick", step).permutation(len(played))
            picks = sorted(order[:number].tolist())
            drawn[step] = [played[pick] for pick in picks]
    return drawn


def measure(
    rounds: dict[int, list[AskedQuestion]], ask: Ask, known: dict[tuple[str, str], Question]
) -> list[YardstickRound]:
    """Ask the questions of each round; a round with fewer than `ENOUGH` rates is left out.
    `known`: (question, target) → that question of a data set."""
    points = []
    for step, asked in rounds.items():
        questions = []
        for one in asked:
            key = (one.question, one.target)
            new = Question(identify(*key), one.question, (one.target,))
            questions.append(known.get(key, new))
        rates = ask(questions)
        own, yardstick = [], []
        for one, rate in zip(asked, rates, strict=True):
            if one.rate is not None and rate is not None:
                own.append(one.rate)
                yardstick.append(rate)
        if len(own) >= ENOUGH:
            points.append(YardstickRound(step, len(own), of_shares(own), of_shares(yardstick)))
    return points


def asker(cfg: Config, folder: Path) -> Ask:
    """Asks the policy in `folder` in this process, with protocol, limits and temperature of `cfg`,
    and the run's corpus, search and judge."""
    role, attempts = cfg.spec.answerer, cfg.game.attempts
    search = corpora.search(cfg, [corpora.TRAIN])
    play = build.player(cfg, role, folder, search, cfg.answering.sampling.temperature)
    judge, tokenizer = build.judge(cfg), build.tokenizer(folder)
    prompt = cfg.spec.examining.prompt

    def ask(questions: Sequence[Question]) -> list[float | None]:
        build.check_words(tokenizer, [one.question for one in questions])
        tasks = []
        for asked in questions:
            for i in range(attempts):
                seed = derive(cfg.seed, "yardstick", asked.id, i)
                fields = {"question": asked.question}
                id = f"{asked.id}a{i}"
                tasks.append(Task(id, asked.id, role, i, seed, fields, prompt=prompt))
        episodes = play(tasks)

        items = []
        for i, episode in enumerate(episodes):
            asked = questions[i // attempts]
            items.append(Item(asked.question, list(asked.answers), episode.final, asked.rubric))
        rights = []
        for episode, decision in zip(episodes, judge.decide(items), strict=True):
            rights.append(None if episode.outcome is Outcome.VOID else decision.right)
        starts = range(0, len(rights), attempts)
        return [win_rate(rights[at : at + attempts], attempts) for at in starts]

    return ask


def leave(run: RunFolder, ask: Ask, policy: str, every: int) -> list[YardstickRound]:
    """Measure a run and leave `yardstick.json` in its folder, for the board. InputError when it has
    no round to ask about."""
    cfg = RunReader(run).cfg
    rounds = chosen(read(run), every, QUESTIONS, cfg.seed)
    points = measure(rounds, ask, answered(cfg))
    rule = "a yardstick asks questions of settled rounds"
    hold(points, rule, f"{run.path} has too few", "let the run go on")
    rows = [[one.step, *one.own, *one.yardstick, one.questions] for one in points]
    told = {"policy": policy, "attempts": cfg.game.attempts, "rounds": rows}
    with whole(run.yardstick) as aside:
        aside.write_text(json.dumps(told), encoding="utf-8")
    return points
