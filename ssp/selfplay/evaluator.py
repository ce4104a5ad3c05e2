"""Held-out evaluation of the answering policy during a run, on the same crew and rollout code as training
(law 8).

Promises the same questions and draws at every evaluation of a run, each asked once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from ssp.base.episode import Outcome
from ssp.config.schema import Config
from ssp.data.readers import Question
from ssp.game import evaluation
from ssp.game.evaluation.summary import Answered
from ssp.game.judge import same
from ssp.selfplay.records import Published
from ssp.selfplay.stages import Stages
from ssp.telemetry.clock import Clock


@dataclass(frozen=True)
class QuestionSet:
    """One evaluation set: its name, its questions, the corpus that is searched (`none` = nothing is
    found)."""

    name: str
    questions: Sequence[Question]
    corpus: str


class Evaluator:
    """Accuracy at `eval.temperature`; the first set periodically, all sets at the end, where an
    anchor that moves (EMA-PG) is evaluated too: on the first set, by the same draws."""

    def __init__(self, cfg: Config, sets: Sequence[QuestionSet]) -> None:
        self._cfg, self._sets = cfg, sets
        self._runs = 0
        block = cfg.block(cfg.spec.answerer)
        learns = block.policy != "frozen"
        self._anchored = learns and block.kl.coef > 0 and block.kl.ema_tau < 1

    async def run(
        self,
        step: int,
        final: bool,
        newest: Published,
        anchor: Callable[[int], Awaitable[Published]],
        stages: Stages,
    ) -> dict[str, float]:
        """Scores of what is due: `eval/accuracy`, `eval/accuracy_1hop`, `eval/<set>/...`,
        `eval/anchor_accuracy`."""
        scores: dict[str, float] = {}
        every = self._cfg.eval.every
        # the last step's is the final one
        periodic = every > 0 and step % every == 0 and step < self._cfg.steps
        if self._sets and (final or periodic):
            self._runs += 1
            for index, chosen in enumerate(self._sets if final and step > 0 else self._sets[:1]):
                found = await self._scores(step, chosen, newest, stages, final)
                scores |= evaluation.metrics(found, chosen.name if index else "")
        if self._anchored and self._sets and step > 0 and final:
            self._runs += 1
            found = await self._scores(step, self._sets[0], await anchor(step), stages, final)
            scores |= {f"eval/anchor_{name}": value for name, value in found.items()}
        return scores

    async def _scores(
        self, step: int, chosen: QuestionSet, newest: Published, stages: Stages, final: bool
    ) -> dict[str, float]:
        per_hop = -(-self._cfg.eval.final_questions_per_hop // (1 if final else 2))
        asked = [q for q in chosen.questions if not q.hops or q.hops in self._cfg.eval.hops]
        questions = evaluation.select(asked, per_hop)
        # A run may end at a step that was just evaluated: the count keeps the two apart.
        mark = f"{step:06d}-i{stages.incarnation}.{self._runs}"
        made = evaluation.make_tasks(
            questions,
            self._cfg.seed,
            chosen.corpus,
            f"eval/{chosen.name}",
            stage=self._cfg.spec.examining,
        )
        tasks = [replace(task, id=f"{task.id}@{mark}", attempt=self._runs) for task in made]
        briefs = await stages.evaluate(step, f"eval-{chosen.name}-{mark}", tasks, newest, Clock())
        asked_and_played = zip(questions, briefs, strict=True)
        rights = [
            None if b.outcome is Outcome.VOID else same(b.final or "", q.answers)
            for q, b in asked_and_played
        ]
        played = zip(questions, rights, briefs, strict=True)
        return evaluation.summarise([Answered(q.hops, right, b.searches) for q, right, b in played])
