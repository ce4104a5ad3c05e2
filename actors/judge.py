"""The referee's verifier and the answer judge as a Ray actor. Its calls are pure: they may be made again anywhere."""

from __future__ import annotations

from typing import Any

import ray

from actors.process import Guarded
from ssp.capacity.memory import threads
from ssp.selfplay.workers.judge import Judge


@ray.remote
class JudgeActor(Guarded, Judge):
    """See `ssp.selfplay.workers.judge.Judge`."""

    def share(self, *args: Any) -> int:
        """See `Calm.share`."""
        return threads.judge(args[0])
