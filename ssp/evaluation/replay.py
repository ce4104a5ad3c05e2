"""An episode on record, parsed and priced again.

Owns the comparison: queries, final answer and reward from the record's ids and text alone. Promises the protocol and the
reward of training (law 8). Refuses to ask a judge: where its word is needed and no exact match gives it, both words are
tried, and the record must agree with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ssp import protocols
from ssp.config.schema import Config
from ssp.data.readers import read_questions
from ssp.episode import PROPOSER, SOLVER, Episode, Outcome
from ssp.judge import same
from ssp.protocols.renderer import decode
from ssp.rewards import proposer as proposer_rewards
from ssp.rewards.score import score
from ssp.tokenlog import Kind
from ssp.world import files

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Compared:
    """One thing on record, and what came out now."""

    what: str
    recorded: object
    now: object

    @property
    def same(self) -> bool:
        """Whether they are equal."""
        return self.recorded == self.now

    def __str__(self) -> str:
        return f"{self.what}: {'same' if self.same else 'DIFFERS'}, recorded {self.recorded!r}, now {self.now!r}"


def check(
    episode: Episode, cfg: Config, tokenizer: PreTrainedTokenizerBase, entry: dict[str, Any], game: dict[str, Any]
) -> list[Compared]:
    """The comparisons that the record allows; of a void only its text is compared."""
    compared = [Compared("text", episode.text, decode(tokenizer, episode.log.ids))]
    if episode.outcome is Outcome.VOID:
        return compared
    final, queries = _parsed(episode, cfg, tokenizer)
    compared.append(Compared("final", episode.final, final))
    compared.append(Compared("queries", episode.queries, queries[: len(episode.queries)]))
    if entry.get("reward") is not None and game:
        now = rewards(episode, cfg, game, entry)
        recorded = entry["reward"]
        compared.append(Compared("reward", recorded, recorded if recorded in now else now[0]))
    return compared


def rewards(episode: Episode, cfg: Config, game: dict[str, Any], entry: dict[str, Any]) -> list[float]:
    """What the episode earns now; two values when that depends on a judge's word that is not on record."""
    if episode.role == PROPOSER:
        if entry["outcome"] == Outcome.REJECTED.value:
            return [cfg.proposer.invalid_reward]
        return [proposer_rewards.reward(cfg.proposer.reward, game["win_rate"], cfg.proposer)]
    if episode.final is None:
        return [cfg.solver.invalid_reward]
    golds = _golds(cfg, game)
    right = same(episode.final, golds)
    words = [right] if right or cfg.judge.kind == "exact" else [False, True]
    return [score(cfg.solver.reward, cfg.solver.reward_options, episode, golds, word) for word in words]


def _golds(cfg: Config, game: dict[str, Any]) -> Sequence[str]:
    """All right answers: those of the data set's row with this question, else the target."""
    if cfg.game.questions != "dataset":
        return (game["target"],)
    rows = read_questions(files.resolve(cfg.data.questions, "questions", cfg))
    return next((row.answers for row in rows if row.question == game["question"]), (game["target"],))


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
