"""An episode on the console: what is on record of it, its log by stretches or token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from launch.records import transcript
from ssp.base.episode import Episode
from ssp.base.tokenlog import Kind, TokenLog
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.game.protocols.renderer import decode
from ssp.views.replay.record import Found

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def header(found: Found) -> Text:
    """What is on record, a line a subject."""
    episode, entry, game = found.episode, found.entry, found.game
    log = episode.log
    lines = [
        ("episode", f"{episode.id}  ({episode.role}, attempt {episode.attempt}, game {episode.game})"),
        ("file", found.place),
        ("stopped", f"{episode.stopped}, {len(episode.queries)} searches, {len(log)} tokens, {log.mask.sum()} trained"),
        ("versions", f"{log.version_min} to {log.version_max}"),
    ]
    if entry:
        outcome = " ".join(str(entry[name]) for name in ("state", "outcome", "cause") if entry[name] is not None)
        reward = "none" if entry["reward"] is None else f"{entry['reward']:g}"
        lines.append(("outcome", f"{outcome}, reward {reward}"))
        if entry["commit_step"] is not None:
            lines.append(("trained", f"step {entry['commit_step']} of {entry['commit_role']}"))
    if game:
        rate = "unknown" if game["win_rate"] is None else f"{game['win_rate']:.2f}"
        lines.append(("question", f"{game['question']}  → {game['target']}"))
        lines.append(
            ("verdict", f"{game['verdict']} {game['rule'] or ''}, {game['attempts']} attempts, win rate {rate}")
        )
    return Text("\n").join(Text(f"{name:>11}  ", style="dim").append(text, style="none") for name, text in lines)


def segments(episode: Episode, cfg: Config, tokenizer: PreTrainedTokenizerBase) -> list[Text]:
    """A heading a stretch of the log, and its text in the transcript's colours."""
    protocol, lines = protocols.get(cfg.protocol), []
    for kind, start, end in episode.log.stretches():
        trained = int(episode.log.mask[start:end].sum())
        lines.append(Text(f"-- {kind.name.lower()}: {end - start} tokens, {trained} trained", style="dim italic"))
        text = decode(tokenizer, episode.log.ids[start:end])
        lines.append(transcript.piece(protocol, episode.role, kind, text))
    return lines


def token_lines(log: TokenLog, tokenizer: PreTrainedTokenizerBase) -> list[Text]:
    """One line a token."""
    heading = f"{'place':>6} {'id':>7} {'kind':<12} {'mask':<5} {'log-prob':>9} {'version':>7}  text"
    lines = [Text(heading, style="bold")]
    for at, id in enumerate(log.ids):
        kind, ours = Kind(log.kinds[at]), log.versions[at] >= 0
        sampled = f"{log.logprobs[at]:>9.4f} {log.versions[at]:>7}" if ours else f"{'-':>9} {'-':>7}"
        shown = repr(decode(tokenizer, [id]))
        text = f"{at:>6} {id:>7} {kind.name.lower():<12} {'1' if log.mask[at] else '0':<5} {sampled}  {shown}"
        lines.append(Text(text, style=transcript.COLOURS[kind]))
    return lines
