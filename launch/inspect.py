"""`ssp inspect RUN:EPISODE`: an episode of a run, segment by segment, with its mask; and its reward
again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from launch import policy
from launch.cli import Parser, run
from launch.shown import golds, transcript
from ssp.base.episode import Episode
from ssp.base.errors import hold
from ssp.base.models import existing
from ssp.base.tokenlog import Kind, TokenLog
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.game.protocols.renderer import decode
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ssp.views.replay.record import Found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when --check finds another parse or reward than the one on
    record."""
    parser = Parser("inspect", "Show an episode of a run, with its mask.")
    parser.add_argument(
        "episode", metavar="RUN:EPISODE", help="a run, and the id of one of its episodes"
    )
    parser.add_argument(
        "--tokens", action="store_true", help="list every token: id, kind, mask, log-prob, version"
    )
    parser.add_argument(
        "--check", action="store_true", help="parse and price it again, and compare with the record"
    )
    policy.trust_flag(parser)
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="default: that of the run's checkpoint"
    )
    args = parser.parse_args(argv)
    # Here, because --help needs none of it.
    from ssp.selfplay.workers import build
    from ssp.views.replay import priced

    found = find(args.episode)
    cfg, role = RunReader(found.run, args.trust_code).cfg, found.episode.role
    saved = (found.run.read_state() or {"folders": {}})["folders"]
    start = args.tokenizer or (
        found.run.path / saved[role] if role in saved else build.model_dir(cfg, role, found.run)
    )
    tokenizer, console = build.tokenizer(start), Terminal(soft_wrap=True)
    console.print(_header(found))
    shown = (
        _tokens(found.episode.log, tokenizer)
        if args.tokens
        else _segments(found.episode, cfg, tokenizer)
    )
    for line in shown:
        console.print(line)
    right = golds.recorded(cfg, found)
    console.print(
        transcript.outcome(found.episode, right, golds.right(cfg, found.episode.final, right))
    )
    if not args.check:
        return 0
    results = priced.check(found.episode, cfg, tokenizer, found.entry, found.game)
    for result in results:
        console.print(transcript.comparison(result))
    return 0 if all(result.same for result in results) else 1


def find(text: str) -> Found:
    """The episode that `text` names. InputError when there is none."""
    from ssp.views.replay import record

    run, _, id = text.partition(":")
    typed = shlex.quote(run) if run else "RUN"
    hold(id, "an episode is RUN:EPISODE", text, f"`ssp bank {typed} --episodes` lists the ids")
    return record.named(RunFolder(existing(run)), id)


def _header(found: Found) -> Text:
    """What is on record, a line a subject."""
    episode, entry, game, log = found.episode, found.entry, found.game, found.episode.log
    lines = {
        "episode": (
            f"{episode.id}  ({episode.role}, attempt {episode.attempt}, game {episode.game})"
        ),
        "file": found.place,
        "stopped": (
            f"{episode.stopped}, {len(episode.queries)} searches, {len(log)} tokens,"
            f" {log.mask.sum()} trained"
        ),
        "versions": f"{log.version_min} to {log.version_max}",
    }
    outcome = " ".join(
        str(entry[name]) for name in ("state", "outcome", "cause") if entry[name] is not None
    )
    lines["outcome"] = (
        f"{outcome}, reward {'none' if entry['reward'] is None else format(entry['reward'], 'g')}"
    )
    if entry["commit_step"] is not None:
        lines["trained"] = f"step {entry['commit_step']} of {entry['commit_role']}"
    if game:
        rate = "unknown" if game["win_rate"] is None else f"{game['win_rate']:.2f}"
        lines["question"] = f"{game['question']}  → {game['target']}"
        verdict = " ".join(filter(None, (game["verdict"], game["rule"])))
        lines["verdict"] = f"{verdict}, {game['attempts']} attempts, win rate {rate}"
    shown = [
        Text(f"{name:>11}  ", style="dim").append(text, style="none")
        for name, text in lines.items()
    ]
    return Text("\n").join(shown)


def _segments(episode: Episode, cfg: Config, tokenizer: PreTrainedTokenizerBase) -> Iterator[Text]:
    """A heading a stretch of the log, and its text in the transcript's colours."""
    protocol = protocols.get(cfg.protocol).naming(episode.tools)
    for kind, start, end in episode.log.stretches():
        trained = int(episode.log.mask[start:end].sum())
        yield Text(
            f"-- {kind.name.lower()}: {end - start} tokens, {trained} trained", style="dim italic"
        )
        yield transcript.piece(
            protocol, episode.role, kind, decode(tokenizer, episode.log.ids[start:end])
        )


def _tokens(log: TokenLog, tokenizer: PreTrainedTokenizerBase) -> Iterator[Text]:
    """One line a token."""
    yield Text(
        f"{'place':>6} {'id':>7} {'kind':<12} {'mask':<5} {'log-prob':>9} {'version':>7}  text",
        style="bold",
    )
    for at, id in enumerate(log.ids):
        kind, ours = Kind(log.kinds[at]), log.versions[at] >= 0
        sampled = (
            f"{log.logprobs[at]:>9.4f} {log.versions[at]:>7}" if ours else f"{'-':>9} {'-':>7}"
        )
        text = (
            f"{at:>6} {id:>7} {kind.name.lower():<12} {int(log.mask[at]):<5} {sampled} "
            f" {decode(tokenizer, [id])!r}"
        )
        yield Text(text, style=transcript.COLOURS[kind])


if __name__ == "__main__":
    raise SystemExit(run(main))
