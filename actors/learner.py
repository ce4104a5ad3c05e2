"""One role's learner as a Ray actor. Its state is weights, optimizer and algorithm: lost with the process, so its death
takes the run back to the last checkpoint."""

from __future__ import annotations

import ray

from actors.process import Calm
from actors.transfer import Hosted
from ssp.selfplay.learner_worker import Learner


@ray.remote
class LearnerActor(Hosted, Calm, Learner):
    """See `ssp.selfplay.learner_worker.Learner`."""
