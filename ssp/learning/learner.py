"""A learner: batches in, optimizer steps, figures out.

One optimizer step an update at most (a mini-batch, where these are set), and weights untouched by a
step whose loss or gradient is not finite. It does not know which algorithm or loss it runs,
versions, games and Ray."""

import time
from collections.abc import Mapping
from itertools import zip_longest

from torch import Tensor

from ssp.base import devices
from ssp.base.values import Values
from ssp.learning.batch import Batch
from ssp.learning.figures import Figures
from ssp.learning.memory import Job, gradient
from ssp.learning.objective import Step
from ssp.learning.store import Stored


class PolicyLearner(Stored):
    """One policy, trained by one role, or by two that share it."""

    def update(self, batches: Mapping[str, Batch]) -> dict[str, Values]:
        """Train on each role's batch; the figures of each by their names in metrics.jsonl.

        Roles that share take their optimizer steps one after the other, or, with `learner.combine`,
        together, on the sum of their gradients. A mini-batch without any signal is measured but
        makes no optimizer step. InvariantError: a loss or gradient that is not finite (weights,
        optimizer and counter are then as before, but for earlier mini-batches). OutOfMemory: a
        micro-batch does not fit."""
        started = time.perf_counter()
        number = self.step + 1
        names = [role for role in self.objectives if role in batches]
        updates = {}
        for roles in [names] if self.config.combine else [[name] for name in names]:
            steps = []
            for role in roles:
                objective = self.objectives[role]
                updates[role] = objective.begin(batches[role], self.backend, number)
                steps.append(objective.steps(updates[role], number))
            for together in zip_longest(*steps):
                self._optimize([step for step in together if step is not None], number)
        self.step = number
        figures = {}
        for role, update in updates.items():
            figures[role] = update.objective.finish(update, self.backend, number)
        for role, update in updates.items():
            seconds = time.perf_counter() - started
            mfu = update.figures.work / (seconds * self.rate)
            figures[role] |= {"seconds": seconds, "mfu": mfu}
        devices.give_back()
        return figures

    def measure(self, batches: Mapping[str, Batch]) -> dict[str, Values]:
        """The figures that `update` would give of each role's batch, without learning: nothing
        changes."""
        figures = {}
        for role, batch in batches.items():
            objective = self.objectives[role]
            kept = objective.algorithm.state_dict()
            update = objective.begin(batch, self.backend, self.step + 1)
            objective.algorithm.load_state_dict(kept)  # which may average over updates
            for step in objective.steps(update, self.step + 1):
                only_measured = step._replace(rows=step.part, learns=False)
                gradient([self._job(only_measured)], self.backend)
            update.figures.reduce(self.ranks)
            tokens = float(update.trained.sum())
            figures[role] = {**update.figures.summary(), "tokens": tokens}
        return figures

    def _optimize(self, steps: list[Step], number: int) -> None:
        """One optimizer step of the policy on `steps` of update `number`, where they have signal,
        and on what they rehearse; and one of each critic."""
        jobs = [self._job(step) for step in steps]
        again = []
        for step in steps:
            update = step.update
            rehearsal = update.objective.rehearsal
            if rehearsal is not None and step.learns:
                traces = rehearsal.drawn(step.episodes, number, update.figures.steps)
                again.append(rehearsal.job(traces, self.backend, self.work, update.rehearsed))
        work = [*jobs, *again]
        losses = gradient(work, self.backend)
        learning = [loss for job, loss in zip(work, losses, strict=True) if job.learns]
        norm = self.backend.learn(sum(learning), steps[0].update.lr) if learning else 0.0
        for job, loss in zip(again, losses[len(jobs) :], strict=True):
            job.figures.steps += 1
            job.figures.loss += loss
        for step, loss in zip(steps, losses[: len(jobs)], strict=True):
            update = step.update
            figures = update.figures
            figures.steps += 1
            figures.loss += loss
            figures.norm += norm if step.learns else 0.0
            critic = update.objective.critic
            if critic is not None:
                critic.step(update.batch, update.trained, step.part, figures)

    def _job(self, step: Step) -> Job:
        update = step.update

        def loss(rows: Tensor, figures: Figures) -> Tensor:
            tokens = int(update.trained[rows].sum())
            ends = update.ends[rows]
            common = self.backend.shared(update.batch.ids[rows], ends)
            figures.work += self.work.operations(ends.tolist(), tokens, step.learns, common)
            return update.objective.loss(self.backend, step, rows, figures)

        return Job(update.batch.ids, update.ends, step.rows, loss, update.figures, step.learns)
