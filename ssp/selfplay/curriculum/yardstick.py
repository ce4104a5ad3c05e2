"""The yardstick: a run's questions, asked again of one policy that never changes (by default what
its solver started from).

Its own rate falls when questions become harder, and the run's solver rises above it on the same
ones when it becomes better. Rollout, corpus, search, judge and attempts are the run's (law 8),
draws depend on the seed and the question alone, voids are in no rate, and the ledger is not
touched. Intervals count questions."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ssp.base.episode import REPLAYED, Outcome, Task
from ssp.base.errors import hold, holding
from ssp.base.files import whole
from ssp.base.intervals import Estimate, of_shares
from ssp.base.seeds import derive, generator
from ssp.config.schema import Config
from ssp.data.readers import Question
from ssp.game.judge import Item
from ssp.game.rewards.proposer import win_rate
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum.figures import Asked, read
from ssp.selfplay.questions.files import answered
from ssp.selfplay.questions.records import identify

FILE = "yardstick.json"
QUESTIONS = 8
"""Asked of a round, at most."""
ENOUGH = 2
"""Questions of a round that are worth a point."""

Ask = Callable[[Sequence[Question]], Sequence[float | None]]
"""Plays questions by the yardstick's policy; the solve rate of each, None when too few attempts
were scored."""


class Measured(NamedTuple):
    """One round: `questions` of it that both have a rate for, the run's own solver on them, and the
    yardstick."""

    step: int
    questions: int
    own: Estimate
    yardstick: Estimate


def chosen(
    rounds: Iterable[tuple[int, Sequence[Asked]]], every: int, number: int, seed: int
) -> dict[int, list[Asked]]:
    """Step → at most `number` played questions of it, drawn: of the first round, and of every
    `every`-th."""
    found: dict[int, list[Asked]] = {}
    for step, asked in rounds:
        there = [one for one in asked if one.rate is not None and one.kind != REPLAYED]
        if there and (step % every == 0 or not found):
            picks = generator(seed, "yardstick", step).permutation(len(there))[:number]
            found[step] = [there[pick] for pick in sorted(picks.tolist())]
    return found


def measure(
    rounds: dict[int, list[Asked]], ask: Ask, known: dict[tuple[str, str], Question]
) -> list[Measured]:
    """Ask the questions of each round; those with fewer than `ENOUGH` rates are left out. `known`:
    a data set's."""
    found = []
    for step, asked in rounds.items():
        keys = [(one.question, one.target) for one in asked]
        rates = ask([known.get(key) or Question(identify(*key), key[0], (key[1],)) for key in keys])
        pairs = [
            (one.rate, rate) for one, rate in zip(asked, rates, strict=True) if rate is not None
        ]
        own, theirs = [own for own, _ in pairs if own is not None], [rate for _, rate in pairs]
        if len(pairs) >= ENOUGH:
            found.append(Measured(step, len(pairs), of_shares(own), of_shares(theirs)))
    return found


def asker(cfg: Config, folder: Path) -> Ask:
    """Who asks a policy of `cfg` (its protocol, limits, temperature; the run's corpus, search and
    judge) in this process."""
    from ssp.game import corpora
    from ssp.selfplay.workers import build

    stage, role = cfg.spec.examining, cfg.spec.answerer
    search = corpora.search(cfg, [corpora.TRAIN])
    play = build.player(cfg, role, folder, search, cfg.block(role).sampling.temperature)
    judge, attempts, words = build.judge(cfg), cfg.game.attempts, build.tokenizer(folder)

    def task(q: Question, i: int) -> Task:
        return Task(
            f"{q.id}a{i}",
            q.id,
            role,
            i,
            derive(cfg.seed, "yardstick", q.id, i),
            {"question": q.question},
            prompt=stage.prompt,
        )

    def ask(questions: Sequence[Question]) -> list[float | None]:
        build.check_words(words, [one.question for one in questions])
        asked = [(one, i) for one in questions for i in range(attempts)]
        episodes = play([task(*one) for one in asked])
        played = zip(asked, episodes, strict=True)
        decided = judge.decide(
            [
                Item(q.question, list(q.answers), episode.final, q.rubric)
                for (q, _), episode in played
            ]
        )
        pairs = zip(episodes, decided, strict=True)
        rights = [
            None if episode.outcome is Outcome.VOID else decision.right
            for episode, decision in pairs
        ]
        return [
            win_rate(rights[at : at + attempts], attempts) for at in range(0, len(rights), attempts)
        ]

    return ask


def leave(
    run: RunFolder, ask: Ask, policy: str, every: int, number: int = QUESTIONS
) -> list[Measured]:
    """Measure a run and leave `FILE` in its folder, for the board. InputError when it has no round
    to ask about."""
    cfg = RunReader(run).cfg
    found = measure(chosen(read(run), every, number, cfg.seed), ask, answered(cfg))
    hold(
        found,
        "a yardstick asks questions of settled rounds",
        f"{run.path} has too few",
        "let the run go on",
    )
    gaps = [[one.step, *one.own, *one.yardstick, one.questions] for one in found]
    told = {"policy": policy, "attempts": cfg.game.attempts, "rounds": gaps}
    with whole(run.path / FILE) as aside:
        aside.write_text(json.dumps(told), encoding="utf-8")
    return found


def read_told(run: RunFolder) -> dict[str, Any] | None:
    """What `leave` left: {policy, attempts, rounds: [step, own, low, high, yardstick, low, high,
    questions]}; None without. InputError for a broken file."""
    file = run.path / FILE
    if not file.exists():
        return None
    with holding(
        (OSError, ValueError, RecursionError),
        f"{FILE} is JSON",
        file,
        "remove it, and measure again",
    ):
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return told
