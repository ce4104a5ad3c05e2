"""An episode on record, parsed and priced again, and its row of the ledger beside it.

Owns the comparison: queries, final answer and reward from the record's ids and text alone; outcome and versions, and whether
a reward is due, from the row's state. Promises the protocol and the reward of training (law 8). Refuses to ask a judge:
where its word is needed and no exact match gives it, both words are tried, and the record must agree with one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ssp.base.episode import EVAL, PROPOSER, SOLVER, Episode, Outcome, State
from ssp.base.tokenlog import Kind
from ssp.config import own
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.game.judge import same
from ssp.game.protocols.renderer import decode
from ssp.game.rewards import proposer as proposer_rewards
from ssp.game.rewards.score import penalty, score
from ssp.game.rollout import passages
from ssp.selfplay.questions.files import answered
from ssp.views.replay.compared import Compared, Result, Untold, first

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check(
    episode: Episode,
    cfg: Config,
    tokenizer: PreTrainedTokenizerBase,
    entry: dict[str, Any],
    game: dict[str, Any],
    update: int | None = None,
) -> list[Result]:
    """The comparisons that the record allows; of a void its text and its row. `update`: in whose limits it was played;
    None: those of the last stage. Without a row in the ledger there is no outcome and no reward to compare."""
    compared: list[Result] = [_text(episode, tokenizer)]
    if episode.outcome is not Outcome.VOID:
        final, turns = _parsed(episode, cfg, tokenizer)
        shown = len(episode.queries), sum(episode.hits)
        compared.append(Compared("final", episode.final, final))
        compared.append(Compared("queries", episode.queries, _searched(episode, cfg, turns)))
        compared.append(Compared("documents", (len(episode.hits), len(episode.documents)), shown))
    return [*compared, *_row(episode, cfg, entry, game, update)] if entry else compared


def _row(
    episode: Episode, cfg: Config, entry: dict[str, Any], game: dict[str, Any], update: int | None
) -> list[Result]:
    """What the ledger says of the episode beside what follows from its file and its state."""
    state, log = State(entry["state"]), episode.log
    settled = state.final or state is State.QUEUED
    if not settled or not (game or entry["role"] == EVAL):
        why = "its game is not in the ledger" if settled else f"it is {state.value} still"
        return [Untold(what, why) for what in ("outcome", "versions", "reward")]
    recorded = entry["policy_version_min"], entry["policy_version_max"]
    versions: Result = Compared("versions", recorded, (log.version_min, log.version_max))
    if state is State.VOIDED and recorded == (None, None):
        versions = Untold("versions", f"it was void before they were noted: {entry['cause']}")
    reward = entry["reward"]
    if not _due(state, cfg, entry, game):
        return [_outcome(episode, state, entry, game), versions, Compared("reward", reward, None)]
    kind = cfg.block(PROPOSER if episode.role == PROPOSER else SOLVER).reward
    if own.sealed(kind):
        why = f"{kind.removeprefix(own.SEALED)} is the run's own code (--trust-code runs it)"
        return [_outcome(episode, state, entry, game), versions, Untold("reward", why)]
    now = rewards(episode, cfg, game, entry, update)
    priced = Compared("reward", reward, reward if reward in now else next(iter(now), None))
    return [_outcome(episode, state, entry, game), versions, priced]


def _outcome(episode: Episode, state: State, entry: dict[str, Any], game: dict[str, Any]) -> Compared:
    """Void by the file or by the state; else of an answer whether it was handed in, of a proposal its game's verdict."""
    good = game.get("verdict") == "valid" if episode.role == PROPOSER else episode.final is not None
    now = Outcome.SCORED if good else Outcome.REJECTED
    if Outcome.VOID in (episode.outcome, Outcome.VOID if state is State.VOIDED else None):
        now = Outcome.VOID
    return Compared("outcome", entry["outcome"], now.value)


def _due(state: State, cfg: Config, entry: dict[str, Any], game: dict[str, Any]) -> bool:
    """Whether an episode in this state has a reward (`ssp.selfplay.settle`)."""
    if state is State.VOIDED or entry["role"] == EVAL:
        return False
    if entry["role"] != PROPOSER:
        return True
    rejected = game["verdict"] == "rejected"
    if entry["cause"] == "surplus":
        return rejected
    if state is State.KEPT:  # by a past version, of which the surplus is kept too
        return cfg.game.batch != "resample" if rejected else bool(game["attempts"])
    return True


def _text(episode: Episode, tokenizer: PreTrainedTokenizerBase) -> Compared:
    """The transcript beside what the ids say; where they differ, the first token that says something else."""
    ids = episode.log.ids
    now, at = decode(tokenizer, ids), None
    if now != episode.text:
        at = bisect_right(passages.ends(ids, lambda some: decode(tokenizer, some)), first(episode.text, now))
    return Compared("text", episode.text, now, at)


def rewards(
    episode: Episode, cfg: Config, game: dict[str, Any], entry: dict[str, Any], update: int | None = None
) -> list[float]:
    """What the episode earns now; two values when that depends on a judge's word that is not on record."""
    limits = cfg.block(episode.role).limits
    loss = penalty(len(episode.log), limits.at(update).total_tokens, limits.overlong)
    surplus = episode.role == PROPOSER and entry["cause"] == "surplus"  # of which nobody looks at the length
    return [word + (0.0 if surplus else loss) for word in _words(episode, cfg, game, entry)]


def _words(episode: Episode, cfg: Config, game: dict[str, Any], entry: dict[str, Any]) -> list[float]:
    """The same, however long the episode is."""
    if episode.role == PROPOSER:
        if game["verdict"] == "rejected":
            return [cfg.proposer.invalid_reward]
        if game["win_rate"] is None:  # no reward follows from what is on record
            return []
        facts = {"question": game["question"], "target": game["target"], "searches": len(episode.queries)}
        return [proposer_rewards.reward(cfg.proposer.reward, game["win_rate"], cfg.proposer, facts)]
    if episode.final is None:
        return [cfg.solver.invalid_reward]
    golds = _golds(cfg, game)
    right = same(episode.final, golds)
    words = [right] if right or cfg.judge.kind == "exact" else [False, True]
    asked = cfg.solver.reward, cfg.solver.reward_options, episode, golds
    observed = (protocols.get(cfg.protocol).observation_form.tag,)
    return [score(*asked, word, observed) for word in words]


def _golds(cfg: Config, game: dict[str, Any]) -> Sequence[str]:
    """All right answers: those of the given question, else the target."""
    row = answered(cfg).get((game["question"], game["target"]))
    return (game["target"],) if row is None else row.answers


def _searched(episode: Episode, cfg: Config, turns: Sequence[Sequence[str]]) -> list[str]:
    """What each turn asked for, less what nobody was to search: what a policy asks itself, and the last turn's queries
    where an episode ends with them."""
    asked = [query for queries in turns for query in queries]
    if cfg.block(episode.role).search.kind != "retriever":
        return asked[: len(episode.queries)]
    if episode.stopped in ("tokens", "turns") and len(asked) > len(episode.queries):
        return asked[: len(asked) - len(turns[-1])]
    return asked


def _parsed(
    episode: Episode, cfg: Config, tokenizer: PreTrainedTokenizerBase
) -> tuple[str | None, list[Sequence[str]]]:
    """The last turn's result, and the queries that each asked for, from the turns' own ids."""
    protocol, role = protocols.get(cfg.protocol), PROPOSER if episode.role == PROPOSER else SOLVER
    written = (int(Kind.MODEL), int(Kind.RECALLED))
    final: str | None = None
    turns: list[Sequence[str]] = []
    at = 0
    for ours, stretch in groupby(episode.log.kinds, lambda kind: kind in written):
        length = len(list(stretch))
        if ours:
            action = protocol.action(role, decode(tokenizer, episode.log.ids[at : at + length]))
            final = action.final
            turns.append(action.queries)
        at += length
    return final, turns
