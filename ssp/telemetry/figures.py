"""Every figure of a run: its name, who has it, unit, kind and meaning.

Owns the one list. The table in docs/metrics.md, the series of Ray's metrics and the Grafana dashboard are made from it
(`ssp.telemetry.published`). Promises that a series keeps its name and its tags. Refuses to know how a figure is made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from ssp.episode import ROLES
from ssp.errors import InvariantError

GAME, EVAL, LIVE = ("game",), ("eval",), ("live",)
LEARNED = ROLES

GAUGE, COUNTER = "gauge", "counter"

_PART = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Figure:
    """One figure. `name` as in metrics.jsonl; a part in angle brackets stands for many, and is a tag of the series.

    `kind`: a counter holds what a step adds to it; its series is the sum since the process began, `<series>_total`.
    """

    name: str
    roles: tuple[str, ...]
    unit: str
    text: str
    kind: str = GAUGE

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts in angle brackets."""
        return tuple(_PART.findall(self.name))

    @property
    def series(self) -> str:
        """The name that the figure has in Ray's metrics (which export it as `ray_<series>`)."""
        return "ssp_" + re.sub(r"[^a-z0-9]+", "_", _PART.sub("", self.name)).strip("_")

    @property
    def tags(self) -> tuple[str, ...]:
        """Keys of the series' tags."""
        return ("role", "run", *self.parts)

    def match(self, name: str) -> dict[str, str] | None:
        """The values of `parts` when `name` is this figure's, else None."""
        pattern = "".join(
            f"(?P<{piece}>.+)" if number % 2 else re.escape(piece)
            for number, piece in enumerate(_PART.split(self.name))
        )
        found = re.fullmatch(pattern, name)
        return None if found is None else found.groupdict()


def _searches() -> list[Figure]:
    stages = {
        "tokenise": "reading the queries",
        "encode": "encoding them",
        "search": "the shards' own work",
        "wait": "the way there and back, with waiting for others",
        "merge": "putting answers together",
        "fetch": "documents",
        "rerank": "the cross-encoder",
    }
    return [
        Figure(f"time/search_{stage}", GAME, "s", f"of `time/search`: {text}; where there was any")
        for stage, text in stages.items()
    ]


def _curriculum() -> list[Figure]:
    """docs/curriculum.md says how each is made; the window is `curriculum.window` rounds."""
    asked = {
        "solved_<band>": ("share", "played questions whose share of right attempts, in per cent, is in that band"),
        "learnability": ("share", "mean of 4 p (1 - p) over played questions, p their share of right attempts"),
        "mixed": ("share", "played questions with some attempts right and some wrong"),
        "reasked": ("share", "played questions that an earlier round played too"),
        "half_life": (
            "rounds",
            "median until the solve rate of a re-asked question has come half way from its first to 1",
        ),
        "hops": ("relations", "mean over the new questions (generated world; else the proposer's searches)"),
        "searches": ("searches", "the proposer's, mean over the new questions"),
        "solver_searches": ("searches", "mean an attempt, mean over played questions"),
        "near_duplicates": (
            "share",
            "new questions with a near-duplicate among the 32 new ones before it",
        ),
        "targets": ("targets", "distinct ones that new questions were about, so far"),
        "coverage_targets": ("share", "of the data's targets, so far"),
        "coverage_targets_window": ("share", "of the data's targets, in the window"),
        "documents": ("documents", "distinct ones that the proposer's searches showed for new questions, so far"),
        "coverage_documents": ("share", "of the corpus, so far (a generated world, an index folder)"),
        "coverage_documents_window": ("share", "of the corpus, in the window"),
        "coverage": (
            "share",
            "distinct targets in the window, of as many as could be; the same of documents; their mean",
        ),
        "answer_entropy": ("bits", "of the classes of the answers in the window"),
        "alarm_<figure>": ("", "1 while the alarm lasts that the diversity in that figure collapsed, else 0"),
    }
    return [Figure(f"curriculum/{name}", GAME, unit, text) for name, (unit, text) in asked.items()]


def _league() -> list[Figure]:
    """docs/league.md says how each is made; with league.match=self there is none."""
    about = {
        "pool": ("versions", "members of the role's pool"),
        "past": ("share", "of the questions that the role's newest version played: those against a past version"),
        "opponent_age": (
            "updates",
            "between the opponent there and the other role's newest (0), mean over these questions",
        ),
        "rating": ("Elo", "of the newest version above the pool's first"),
        "rating_error": ("Elo", "its standard error: large while no games compare the two"),
    }
    return [Figure(f"league/{name}", LEARNED, unit, text) for name, (unit, text) in about.items()]


_GAME = [
    Figure(
        "game/proposed",
        GAME,
        "questions",
        "proposals of the round, extra batches of `game.batch=resample` included",
        COUNTER,
    ),
    Figure("game/accepted", GAME, "questions", "proposals that the referee passed", COUNTER),
    Figure(
        "game/played",
        GAME,
        "questions",
        "questions the solver was asked (accepted ones up to `solver.batch`, and refills)",
        COUNTER,
    ),
    Figure("game/refilled", GAME, "questions", "of these, how many came from the replay pool", COUNTER),
    Figure("game/valid_rate", GAME, "share", "accepted among proposals that are not void"),
    Figure("game/win_rate", GAME, "share", "mean over played questions of the share of right attempts"),
    Figure("game/no_signal_rate", GAME, "share", "played questions whose attempts were all right or all wrong"),
    Figure(
        "game/hops_mean",
        GAME,
        "relations",
        "mean over accepted questions (generated world; else the proposer's mean searches)",
    ),
    Figure(
        "game/junk_rate",
        GAME,
        "share",
        "accepted questions whose true answer is not the target (generated world's oracle; never used for rewards)",
    ),
    Figure("game/proposer_searches", GAME, "searches", "mean an episode"),
    Figure("game/solver_searches", GAME, "searches", "mean an episode"),
    *_curriculum(),
    Figure("game/tokens", GAME, "tokens", "model tokens of the round", COUNTER),
    Figure("void/<cause>", GAME, "episodes", "faults of ours, by cause", COUNTER),
    Figure(
        "reject/<rule>",
        GAME,
        "episodes",
        "rules that the proposer broke; `solver_<rule>`: that the solver broke",
        COUNTER,
    ),
    Figure("tokens_per_second", GAME, "tokens/s", "`game/tokens` over the step's wall time"),
    *[
        Figure(f"time/{part}", GAME, "s", f"{text}, on the step's critical path: the slowest worker of each stage")
        for part, text in {
            "generate": "engines",
            "search": "searching",
            "verify": "the referee's verifier",
            "judge": "the judge",
        }.items()
    ],
    Figure("time/learn", GAME, "s", "the slower learner, on the step's critical path"),
    *_searches(),
    Figure(
        "search/coverage",
        GAME,
        "share",
        "of the corpus's rows, in the search of the round that reached fewest (1: every answer is of the whole corpus)",
    ),
    Figure("time/overhead", GAME, "s", "`time/step` minus these: transport, ledger, files, scheduling"),
    Figure("time/idle", GAME, "s", "mean idle time of a computing actor in the step, by what the actors report"),
    Figure(
        "time/idle_share_<actors>",
        GAME,
        "share",
        "of the step's time in which an actor of that kind (proposer, solver, judge, learner_solver, ...) had no call "
        "under way, their mean; as the timeline shows it",
    ),
    Figure("time/step", GAME, "s", "wall time from the previous step's end, evaluation left out"),
]

_ROLE = [
    Figure("reward/mean", LEARNED, "reward", "mean over the episodes of the batch"),
    Figure("episodes", LEARNED, "episodes", "size of the batch", COUNTER),
    Figure(
        "staleness/mean",
        LEARNED,
        "versions",
        "version being trained minus the version of an episode's oldest model token",
    ),
    Figure("staleness/max", LEARNED, "versions", "the largest in the batch"),
    *_league(),
    Figure("version", LEARNED, "number", "version published by this step"),
    Figure("loss", LEARNED, "", "of the optimizer step; the mean of several (`learner.minibatch`)"),
    Figure("grad_norm", LEARNED, "", "of the gradient before clipping; the mean of several"),
    Figure("lr", LEARNED, "", "learning rate"),
    Figure("ratio/mean", LEARNED, "ratio", "trainer over behaviour probability of a model token, before the update"),
    Figure("ratio/max", LEARNED, "ratio", "the largest of them"),
    Figure(
        "ratio/samples",
        LEARNED,
        "share",
        "effective sample size, (sum w)^2 / sum w^2 of these ratios w, of the model tokens (1: all count alike)",
    ),
    Figure("clip_fraction", LEARNED, "share", "model tokens whose ratio was clipped"),
    Figure("clip_fraction/low", LEARNED, "share", "of these, tokens whose ratio was small"),
    Figure("clip_fraction/high", LEARNED, "share", "large, with an advantage of at least 0"),
    Figure("clip_fraction/dual", LEARNED, "share", "large, with a negative one (dual clip, a cap)"),
    Figure(
        "correction/masked",
        LEARNED,
        "share",
        "model tokens that `correction.mask` took out of the loss (only with one)",
    ),
    Figure("entropy", LEARNED, "nats", "mean over model tokens"),
    Figure("nll", LEARNED, "nats", "mean -log p of the model tokens by the trainer"),
    Figure("kl", LEARNED, "nats", "to the reference, by `kl.kind`, mean over model tokens (`kl.coef` > 0 only)"),
    Figure("kl/coef", LEARNED, "", "its coefficient in this update (`kl.target` > 0 only)"),
    Figure("value/loss", LEARNED, "", "of the critic (`algorithm=gae` only)"),
    Figure("value/mean", LEARNED, "", "the critic's mean value"),
    Figure("value/clip_fraction", LEARNED, "share", "values that moved too far"),
    Figure(
        "logprob_mismatch/kl",
        LEARNED,
        "nats",
        "engine against trainer on the same tokens, before the update's first optimizer step: KL of the two; near 0 at "
        "staleness 0",
    ),
    Figure("logprob_mismatch/p99", LEARNED, "nats", "99th percentile of the size of the log-ratio"),
    Figure("logprob_mismatch/max", LEARNED, "nats", "the largest"),
    Figure("advantage/mean_abs", LEARNED, "", "mean absolute advantage"),
    Figure("tokens", LEARNED, "tokens", "model tokens trained on", COUNTER),
    Figure("tokens_per_second", LEARNED, "tokens/s", "these over the learner's busy seconds"),
    Figure(
        "mfu",
        LEARNED,
        "share",
        "operations that the model needs for the sequences of the update (6N a token and attention; no padding, no "
        "recomputation, no critic or reference), over its seconds and the rate of large matrix products in "
        "`learner.dtype`, measured once at the learner's start on its device and threads (on a CPU: the share of that "
        "rate)",
    ),
    Figure(
        "generate/tokens_per_second",
        LEARNED,
        "tokens/s",
        "model tokens that the role's players made in the round over the generating seconds of its slowest player",
    ),
    Figure(
        "reward/all",
        LEARNED,
        "reward",
        "mean an episode of the round, also of groups that were left out because they have no spread",
    ),
    Figure("searches", LEARNED, "searches", "the same of the searches"),
    Figure(
        "reward/overlong",
        LEARNED,
        "reward",
        "mean that these episodes lost because they came near `limits.total_tokens` (`limits.overlong` > 0 only; at "
        "most 0)",
    ),
    Figure("groups/flat", LEARNED, "share", "groups (of two episodes and more) whose rewards are all equal"),
    Figure(
        "health/alarms",
        LEARNED,
        "alarms",
        "causes for which the limits of `health.*` have been passed for `health.patience` updates",
    ),
    Figure("seconds", LEARNED, "s", "of the update"),
    Figure("sync/bytes", LEARNED, "bytes", "of the weights that were published", COUNTER),
    Figure(
        "time/sync_pack",
        LEARNED,
        "s",
        "the learner: exporting is not in it, making the parcel is (file, digests)",
    ),
    Figure("time/sync_transfer", LEARNED, "s", "the slowest player: getting the weights of the version before"),
    Figure("time/sync_load", LEARNED, "s", "the slowest player: putting them into its engine"),
]

_EVAL = [
    Figure(
        "eval/accuracy",
        EVAL,
        "share",
        "right answers on the first evaluation set (held-out world), sampled at `eval.temperature`",
    ),
    Figure("eval/accuracy_<hops>hop", EVAL, "share", "by hops"),
    Figure("eval/accuracy_mean123", EVAL, "share", "mean of 1, 2 and 3 hops"),
    Figure("eval/stderr", EVAL, "share", "standard error of the accuracy"),
    Figure("eval/stderr_<hops>hop", EVAL, "share", "by hops"),
    Figure("eval/items", EVAL, "episodes", "questions scored"),
    Figure("eval/items_<hops>hop", EVAL, "episodes", "by hops"),
    Figure("eval/void", EVAL, "episodes", "left out because of a fault"),
    Figure("eval/searches", EVAL, "searches", "mean a question"),
    Figure(
        "eval/anchor_<figure>",
        EVAL,
        "",
        "the same of the solver's moving KL reference (`solver.kl.ema_tau` < 1), on the first set: every "
        "`eval.anchor_every` steps and at the end",
    ),
    Figure(
        "eval/<set>/<figure>",
        EVAL,
        "",
        "the same for the further sets: `train` (the training world), `nosearch` (search switched off); last step only",
    ),
    Figure("time/eval", EVAL, "s", "of the evaluation"),
]

_LIVE = [
    Figure("step", (*GAME, *LEARNED, *EVAL, *LIVE), "steps", "the newest step with a row"),
    Figure("actor/busy_seconds", LIVE, "s", "with a call under way; role is the kind of actor", COUNTER),
    Figure("actor/count", LIVE, "actors", "of that kind"),
    Figure("actor/version", LIVE, "number", "oldest version that an actor of that kind plays with now"),
    Figure("queue/items", LIVE, "items", "that a queue holds, leased ones included; role is the queue"),
    Figure("queue/bytes", LIVE, "bytes", "of their payloads"),
    Figure("queue/leased", LIVE, "tickets", "of these, with a taker"),
    Figure("queue/age", LIVE, "s", "of the one that has been there longest"),
    Figure("retriever/queries", LIVE, "queries", "that shards and encoders were asked, each counted", COUNTER),
    Figure("retriever/under_way", LIVE, "calls", "of shards and encoders now"),
    Figure("retriever/busy_seconds", LIVE, "s", "of computing, all shards and encoders together", COUNTER),
]

FIGURES = (*_GAME, *_ROLE, *_EVAL, *_LIVE)
"""Every figure, in the order in which they are shown. Those of role `live` are no rows of metrics.jsonl."""


@cache
def find(name: str, role: str) -> tuple[Figure, dict[str, str]]:
    """The figure called `name` of `role`, and the values of its parts. InvariantError for one that is not listed."""
    matches = [(figure, figure.match(name)) for figure in FIGURES if role in figure.roles]
    known = [(figure, parts) for figure, parts in matches if parts is not None]
    if not known:
        raise InvariantError(f"figure {name} of role {role} is not in ssp.telemetry.figures: add it there")
    return min(known, key=lambda one: len(one[1]))  # a name of its own comes before one with parts
