"""An episode on record, parsed and priced again, and its row of the ledger beside it.

No judge is asked. Where the reward needs a judge's word that no exact match gives, both words are
tried, and the record must agree with one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ssp.base.episode import EVAL, Episode, Grade, Outcome, State
from ssp.base.tokenlog import Kind
from ssp.config import own
from ssp.config.schema import Config
from ssp.data.readers import Question
from ssp.game import protocols
from ssp.game import rewards as known
from ssp.game.games.pay import by_grade, by_win_rate
from ssp.game.judge import same
from ssp.game.protocols.bare import decode
from ssp.game.rewards import proposer as proposer_rewards
from ssp.game.rewards.options import takes
from ssp.game.rewards.score import score
from ssp.game.rollout import passages
from ssp.record.ledger.rows import Row
from ssp.selfplay.questions.files import answered
from ssp.selfplay.workers import build
from ssp.views.replay.compared import Result, compared, first, untold

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check(
    episode: Episode,
    cfg: Config,
    tokenizer: PreTrainedTokenizerBase,
    entry: Row,
    game: Row,
) -> list[Result]:
    """The comparisons that the record allows: of a void its text and its row. `entry` and `game`:
    rows of the ledger; without one there is no outcome and no reward to compare."""
    results = [_text(episode, tokenizer)]
    if episode.outcome is not Outcome.VOID and not cfg.block(episode.role).agent:
        prompt = cfg.spec.prompt(entry.get("kind", ""), episode.role)
        final, queries = _parsed(episode, cfg, tokenizer, prompt)
        results.append(compared("final", episode.final, final))
        results.append(compared("queries", episode.queries, queries))
        shown = len(episode.queries), sum(episode.hits)
        results.append(compared("documents", (len(episode.hits), len(episode.documents)), shown))
    return [*results, *_row(episode, cfg, entry, game)] if entry else results


def _row(episode: Episode, cfg: Config, entry: Row, game: Row) -> list[Result]:
    """What the ledger says of the episode beside what follows from its file and its state."""
    state = State(entry["state"])
    log = episode.log
    settled = state.final or state is State.QUEUED
    if not settled or not (game or entry["role"] == EVAL):
        why = "its game is not in the ledger" if settled else f"it is {state.value} still"
        return [untold(what, why) for what in ("outcome", "versions", "reward")]

    good = episode.final is not None
    if episode.role == cfg.spec.asker:
        good = game.get("verdict") == "valid"
    outcome = Outcome.SCORED if good else Outcome.REJECTED
    if episode.outcome is Outcome.VOID or state is State.VOIDED:
        outcome = Outcome.VOID

    recorded = entry["policy_version_min"], entry["policy_version_max"]
    versions = compared("versions", recorded, log.version_span)
    if state is State.VOIDED and recorded == (None, None):
        versions = untold("versions", f"it was void before they were noted: {entry['cause']}")
    return [
        compared("outcome", entry["outcome"], outcome.value),
        versions,
        _reward(episode, cfg, entry, game),
    ]


def _reward(episode: Episode, cfg: Config, entry: Row, game: Row) -> Result:
    """The reward on record beside the one now. `entry` and `game`: rows of a settled episode."""
    recorded = entry["reward"]
    kind = cfg.block(episode.role).reward
    if not _due(State(entry["state"]), cfg, entry, game):
        return compared("reward", recorded, None)
    if own.sealed(kind):
        return sealed(kind.removeprefix(own.SEALED))
    if not paid_alone(cfg, entry):
        return untold("reward", "the game prices it by all of its episodes")
    missing = _unrecorded(episode, cfg, game)
    if missing:
        return untold("reward", f"it depends on {missing}, which is not on record")
    now = rewards(episode, cfg, game)
    return compared("reward", recorded, recorded if recorded in now else next(iter(now), None))


def sealed(code: str) -> Result:
    """What is said of a reward that the run's own code gives."""
    return untold("reward", f"{code} is the run's own code (--trust-code runs it)")


def paid_alone(cfg: Config, entry: Row) -> bool:
    """Whether the episode is paid as in the duel: by its own row and its game's win rate."""
    stage = str(entry["kind"])
    pay = cfg.spec.payment(stage if stage in cfg.spec.plays else cfg.spec.answers)
    return pay is not None and pay.by in (by_win_rate, by_grade)


def _unrecorded(episode: Episode, cfg: Config, game: Row) -> str:
    """What the reward depends on and no record has; "" for nothing."""
    if episode.role == cfg.spec.asker:
        if game["verdict"] != "valid":
            return ""
        if cfg.asking.guide:
            return "the guide's score"
        counts = proposer_rewards.counts_attempts(cfg.asking.reward)
        return "how its attempts went one by one" if counts else ""
    reward = known.get(cfg.block(episode.role).reward)
    if takes(reward, "turns"):
        return "the documents' texts"
    if cfg.game.questions == "dataset" and (game["question"], game["target"]) not in _known(cfg):
        return "the question's other answers"
    scored = cfg.judge.kind != "exact" and cfg.judge.scores
    return "the judge's score" if scored and takes(reward, "score") else ""


def _due(state: State, cfg: Config, entry: Row, game: Row) -> bool:
    """Whether an episode in this state has a reward (`ssp.selfplay.settle`)."""
    if state is State.VOIDED or entry["role"] == EVAL:
        return False
    if entry["role"] != cfg.spec.asker:
        return True
    rejected = game["verdict"] == "rejected"
    if entry["cause"] == "surplus":
        return rejected
    if state is State.KEPT:  # by a past version, of which the surplus is kept too
        return cfg.game.batch != "resample" if rejected else bool(game["attempts"])
    return True


def _text(episode: Episode, tokenizer: PreTrainedTokenizerBase) -> Result:
    """The transcript beside what the ids say. Where they differ, the place is that of the first
    token that says something else."""
    ids = episode.log.ids
    now = decode(tokenizer, episode.log.ids)
    if now == episode.text:
        return compared("text", episode.text, now)
    begin = first(episode.text, now)
    at = bisect_right(passages.ends(ids, lambda some: decode(tokenizer, some)), begin)
    return compared("text", episode.text[begin:], now[begin:], at)


_READ: list[tuple[Config, dict[tuple[str, str], Question]]] = []


def _known(cfg: Config) -> dict[tuple[str, str], Question]:
    """`answered`, read once for the episodes of a run."""
    if not _READ or _READ[0][0] is not cfg:
        _READ[:] = [(cfg, answered(cfg))]
    return _READ[0][1]


def golds(cfg: Config, game: Row) -> Sequence[str]:
    """The right answers to a game's question: those in its row of the data set, else its target."""
    row = _known(cfg).get((game["question"], game["target"]))
    return (game["target"],) if row is None else row.answers


def rewards(episode: Episode, cfg: Config, game: Row) -> list[float]:
    """What the episode earns now: one value, or two when it depends on a judge's word that is not
    on record; none where no reward follows from what is there."""
    if episode.role == cfg.spec.asker:
        if game["verdict"] == "rejected":
            return [cfg.asking.invalid_reward]
        if game["win_rate"] is None:
            return []
        facts = {"question": game["question"], "target": game["target"]}
        facts["searches"] = len(episode.queries)
        return [proposer_rewards.reward(cfg.asking.reward, game["win_rate"], cfg.asking, facts)]
    block = cfg.block(episode.role)
    if episode.final is None:
        return [block.invalid_reward]
    answers = golds(cfg, game)
    right = same(episode.final, answers)
    words = [right] if right or cfg.judge.kind == "exact" else [False, True]
    observed = (protocols.get(cfg.protocol).observation_form.tag,)
    return [
        score(block.reward, block.reward_options, episode, answers, Grade(word), observed)[0]
        for word in words
    ]


def _parsed(
    episode: Episode, cfg: Config, tokenizer: PreTrainedTokenizerBase, prompt: str
) -> tuple[str | None, list[str]]:
    """The last turn's result, and the queries that the turns asked for, read from their ids. Left
    out is what nobody was to search: what a policy asks itself, and the last turn's queries where
    the episode ends with them."""
    protocol = build.protocol(cfg, episode.role)
    by_the_policy = (int(Kind.MODEL), int(Kind.RECALLED))
    final = None
    last = 0
    at = 0
    asked: list[str] = []
    for written, stretch in groupby(episode.log.kinds, lambda kind: kind in by_the_policy):
        end = at + len(list(stretch))
        if written:
            action = protocol.action(prompt, decode(tokenizer, episode.log.ids[at:end]))
            final = action.final
            last = len(action.queries)
            asked += action.queries
        at = end
    if cfg.block(episode.role).search.kind != "retriever":
        return final, asked[: len(episode.queries)]
    if episode.stopped in ("tokens", "turns") and len(asked) > len(episode.queries):
        return final, asked[: len(asked) - last]
    return final, asked
