"""An episode on record, parsed and priced again.

Owns the comparison: queries, final answer and reward from the record's ids and text alone. Promises the protocol and the
reward of training (law 8). Refuses to ask a judge: where its word is needed and no exact match gives it, both words are
tried, and the record must agree with one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ssp import protocols
from ssp.bank.given import answered
from ssp.config.schema import Config
from ssp.episode import PROPOSER, SOLVER, Episode, Outcome
from ssp.judge import same
from ssp.protocols.renderer import decode
from ssp.replay.compared import Compared, first
from ssp.rewards import proposer as proposer_rewards
from ssp.rewards.overlong import penalty
from ssp.rewards.score import score
from ssp.rollout import spans
from ssp.tokenlog import Kind

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check(
    episode: Episode,
    cfg: Config,
    tokenizer: PreTrainedTokenizerBase,
    entry: dict[str, Any],
    game: dict[str, Any],
    update: int | None = None,
) -> list[Compared]:
    """The comparisons that the record allows; of a void only its text is compared. `update`: in whose limits it was
    played; None: those of the last stage."""
    compared = [_text(episode, tokenizer)]
    if episode.outcome is Outcome.VOID:
        return compared
    final, queries = _parsed(episode, cfg, tokenizer)
    compared.append(Compared("final", episode.final, final))
    compared.append(Compared("queries", episode.queries, queries[: len(episode.queries)]))
    if entry.get("reward") is not None and game:
        now = rewards(episode, cfg, game, entry, update)
        recorded = entry["reward"]
        compared.append(Compared("reward", recorded, recorded if recorded in now else now[0]))
    return compared


def _text(episode: Episode, tokenizer: PreTrainedTokenizerBase) -> Compared:
    """The transcript beside what the ids say; where they differ, the first token that says something else."""
    ids = episode.log.ids
    now, at = decode(tokenizer, ids), None
    if now != episode.text:
        at = bisect_right(spans.ends(ids, lambda some: decode(tokenizer, some)), first(episode.text, now))
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
        if entry["outcome"] == Outcome.REJECTED.value:
            return [cfg.proposer.invalid_reward]
        facts = {"question": game["question"], "target": game["target"], "searches": len(episode.queries)}
        return [proposer_rewards.reward(cfg.proposer.reward, game["win_rate"], cfg.proposer, facts)]
    if episode.final is None:
        return [cfg.solver.invalid_reward]
    golds = _golds(cfg, game)
    right = same(episode.final, golds)
    words = [right] if right or cfg.judge.kind == "exact" else [False, True]
    return [score(cfg.solver.reward, cfg.solver.reward_options, episode, golds, word) for word in words]


def _golds(cfg: Config, game: dict[str, Any]) -> Sequence[str]:
    """All right answers: those of the given question, else the target."""
    row = answered(cfg).get((game["question"], game["target"]))
    return (game["target"],) if row is None else row.answers


def _parsed(episode: Episode, cfg: Config, tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, list[str]]:
    """The last turn's result, and every query asked for, from the turns' own ids."""
    protocol, role = protocols.get(cfg.protocol), PROPOSER if episode.role == PROPOSER else SOLVER
    written = (int(Kind.MODEL), int(Kind.RECALLED))
    final: str | None = None
    queries: list[str] = []
    at = 0
    for ours, stretch in groupby(episode.log.kinds, lambda kind: kind in written):
        length = len(list(stretch))
        if ours:
            action = protocol.action(role, decode(tokenizer, episode.log.ids[at : at + length]))
            final = action.final
            queries += action.queries
        at += length
    return final, queries
