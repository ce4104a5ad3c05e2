"""The referee's verifier and the answer judge as a Ray actor. Its calls are pure: they may be made again anywhere."""

from __future__ import annotations

import ray

from actors.process import Guarded
from ssp.workers.judge import Judge


@ray.remote
class JudgeActor(Guarded, Judge):
    """See `ssp.workers.judge.Judge`."""
