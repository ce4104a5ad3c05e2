"""Every cause for which an episode can be void: what it means, and what to do about it.

Owns the words that `Fault` carries and `void/<cause>` counts. Promises an entry for each one that the source raises (a test
counts), and that docs/faults.md shows these. Refuses to decide anything: a cause is typed where it is known.
"""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """What a cause means, and what a user does next where it keeps coming."""

    meaning: str
    next_step: str


LOG = "read deaths.jsonl in the run folder: it tells memory, last call and log of each process that ended"

CAUSES = {
    "aborted": Cause("a turn was ended because its engine or its block was", "nothing: it follows from another fault"),
    "broadcast_failed": Cause(
        "a broadcast of weights broke, mostly because somebody in it died", "nothing: they come by the object store"
    ),
    "corrupted": Cause("a downloaded file is not the one that was published", "run the download again"),
    "engine_awake": Cause(
        "an engine did not give its GPU memory back to the learner",
        "lower placement.engine_gpus or learner.token_budget",
    ),
    "engine_down": Cause("an engine, or the server behind it, fails", f"see the server's log, or {LOG}"),
    "engine_nonfinite": Cause("the weights give probabilities that are no numbers", "lower learner.lr; see health.*"),
    "engine_refused": Cause("an engine does not take the request", "correct engine.*: the detail names what it says"),
    "hub_failed": Cause("the model hub answers with an error", "check the name and HF_ENDPOINT, then run it again"),
    "hub_unreachable": Cause("no model hub answers", "check the network and HF_ENDPOINT, then run it again"),
    "interrupted": Cause("it was being played when the run ended, or went back to a checkpoint", "nothing"),
    "judge_deadline": Cause("no verdict came in time", "raise judge.timeout, or lower judge.concurrency"),
    "judge_down": Cause("the judge's server does not answer", "see whether judge.url is up"),
    "judge_format": Cause("the judge answers in another form than asked for", "check judge.format and the model"),
    "judge_refused": Cause("the judge's server does not take the request", "correct judge.url, judge.model or its key"),
    "math_verify": Cause("the process that compares formulas ended", "run it again; lower the load of the machine"),
    "not_recorded": Cause("a search is not in the recording that is played", "record it: ssp eval --record"),
    "payload_lost": Cause("an object of Ray's, or a file of weights, is gone with its node", LOG),
    "quota": Cause("the web search's quota is used up", "raise retriever.online.quota, or wait for the account"),
    "retriever_busy": Cause("a retriever has more requests than it queues", "add retriever.replicas"),
    "retriever_down": Cause("no answer of the retriever in time", "see whether it is up; add retriever.replicas"),
    "retriever_loading": Cause("the retriever still loads its index", "wait until GET /readyz says so"),
    "retriever_partial": Cause(
        "too few of the rows could be searched", "lower retriever.min_coverage, or add replicas"
    ),
    "retriever_schema": Cause(
        "a retriever answers in another form than agreed", "see that retriever.url speaks /retrieve"
    ),
    "too_few_attempts": Cause(
        "fewer than half of a game's attempts were scored, so its proposal is void too", "see the attempts' causes"
    ),
    "weights_gone": Cause("a player asked for weights that the learner no longer keeps", "nothing: newer ones come"),
    "weights_missed": Cause("a player joined after a broadcast", "nothing: the learner gives the weights again"),
}
"""By word."""

FAMILIES = {
    "_died": Cause("the process of that kind of actor ended while it worked", LOG),
    "_deadline": Cause(
        "that kind of actor did not answer within placement.call_timeout and was ended", "raise it, or " + LOG
    ),
    "_memory": Cause("memory did not suffice inside of a collective", "lower learner.token_budget"),
}
"""By ending: faults of a crew, `<crew>_died` and so on, such as solver_died or learner-proposer_deadline."""

UNKNOWN = Cause("a cause without an entry here, which is a bug", "report it")


def find(cause: str) -> Cause:
    """The entry of a cause."""
    family = next((entry for ending, entry in FAMILIES.items() if cause.endswith(ending)), UNKNOWN)
    return CAUSES.get(cause, family)
