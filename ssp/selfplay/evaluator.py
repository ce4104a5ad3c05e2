"""Held-out evaluation of the answering policy during a run, on the crew and the rollout code of
training (law 8).

Promises the same questions and draws at every evaluation of a run, each asked once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from ssp.base.episode import Outcome
from ssp.base.values import Values
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
    """One evaluation set: its name, its questions, and the corpus to search (`none`: a search
    returns nothing)."""

    name: str
    questions: Sequence[Question]
    corpus: str


class Evaluator:
    """Measures accuracy at `eval.temperature`: on the first set periodically, on all sets at the
    end. A KL anchor that moves (EMA-PG) is evaluated at the end too, on the first set and by the
    same draws."""

    def __init__(self, cfg: Config, sets: Sequence[QuestionSet]) -> None:
        self._cfg = cfg
        self._sets = sets
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
    ) -> Values:
        """The scores that are due: `eval/accuracy`, `eval/accuracy_1hop`, `eval/<set>/...`,
        `eval/anchor_accuracy`."""
        scores: Values = {}
        if not self._sets:
            return scores
        every = self._cfg.eval.every
        # The evaluation of the last step is the final one.
        periodic = every > 0 and step % every == 0 and step < self._cfg.steps
        at_the_end = final and step > 0
        if final or periodic:
            self._runs += 1
            for index, chosen in enumerate(self._sets if at_the_end else self._sets[:1]):
                summary = await self._scores(step, chosen, newest, stages, final)
                scores |= evaluation.metrics(summary, chosen.name if index else "")
        if self._anchored and at_the_end:
            self._runs += 1
            summary = await self._scores(step, self._sets[0], await anchor(step), stages, final)
            scores |= {f"eval/anchor_{name}": value for name, value in summary.items()}
        return scores

    async def _scores(
        self, step: int, chosen: QuestionSet, newest: Published, stages: Stages, final: bool
    ) -> Values:
        """Ask the questions of one set; its summary."""
        per_hop = -(-self._cfg.eval.final_questions_per_hop // (1 if final else 2))
        hops = self._cfg.eval.hops
        asked = [q for q in chosen.questions if not q.hops or q.hops in hops]
        questions = evaluation.select(asked, per_hop)
        # A run may end at a step that was just evaluated: the count keeps the two apart.
        mark = f"{step:06d}-i{stages.incarnation}.{self._runs}"
        examining = self._cfg.spec.examining
        named = f"eval/{chosen.name}"
        made = evaluation.make_tasks(
            questions, self._cfg.seed, chosen.corpus, named, stage=examining
        )
        tasks = [replace(task, id=f"{task.id}@{mark}", attempt=self._runs) for task in made]
        briefs = await stages.evaluate(step, f"eval-{chosen.name}-{mark}", tasks, newest, Clock())
        answered = []
        for question, brief in zip(questions, briefs, strict=True):
            void = brief.outcome is Outcome.VOID
            right = None if void else same(brief.final or "", question.answers)
            answered.append(Answered(question.hops, right, brief.searches, question.category))
        return evaluation.summarise(answered)
