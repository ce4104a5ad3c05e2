"""`ssp inspect EPISODE`: an episode of a run, segment by segment, with its mask; and whether its reward comes out again.

Owns the command and the ways to name an episode: `RUN:id` by the ledger, `FILE.parquet:row` by its place. Promises to
change nothing. Refuses to train or judge.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from launch import policy, transcript
from launch.cli import Parser
from ssp import build, protocols
from ssp.config import load
from ssp.config.schema import Config
from ssp.episode import Episode
from ssp.errors import InputError, InvariantError
from ssp.evaluation import replay
from ssp.ledger.book import Ledger
from ssp.protocols.renderer import decode
from ssp.runfolder import RunFolder
from ssp.telemetry import episodes as transcripts
from ssp.tokenlog import Kind, TokenLog

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Found:
    """An episode, where it lies, and what the ledger says of it and of its game (empty: nothing)."""

    episode: Episode
    place: str
    run: RunFolder
    entry: dict[str, Any]
    game: dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when --check finds another parse or reward than the one on record."""
    parser = Parser("inspect", "Show an episode of a run, with its mask.")
    parser.add_argument(
        "episode", metavar="RUN:id|FILE.parquet:row", help="an id of the run's ledger, or a row of a file"
    )
    parser.add_argument(
        "--tokens", action="store_true", help="list every token: id, text, kind, mask, log-prob, version"
    )
    parser.add_argument("--check", action="store_true", help="parse and price it again, and compare with the record")
    parser.add_argument("--tokenizer", default="", metavar="DIR", help="default: that of the run's checkpoint")
    args = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    found = find(args.episode)
    cfg = load(str(found.run.config), [])
    folder = Path(args.tokenizer) if args.tokenizer else _newest(found.run, cfg, found.episode.role)
    tokenizer = build.tokenizer(folder)
    console = Console(highlight=False, soft_wrap=True)
    console.print(header(found))
    if args.tokens:
        for line in token_lines(found.episode.log, tokenizer):
            console.print(line)
    else:
        for line in segments(found.episode, cfg, tokenizer):
            console.print(line)
    console.print(transcript.outcome(found.episode))
    if not args.check:
        return 0
    results = replay.check(found.episode, cfg, tokenizer, found.entry, found.game)
    for result in results:
        console.print(Text(str(result), style="green" if result.same else "bold red"))
    return 0 if all(result.same for result in results) else 1


def find(text: str) -> Found:
    """The episode that `text` names. InputError when there is none."""
    before, colon, after = text.rpartition(":") if text.rpartition(":")[0].endswith(".parquet") else text.partition(":")
    if not colon or not after:
        raise InputError("an episode is RUN:id or FILE.parquet:row", text, "see episodes(id, file, row) of ledger.db")
    if before.endswith(".parquet"):
        path = Path(before).absolute()
        run = RunFolder(path.parent.parent)
        episode = _row(path, after)
        entry, game = _recorded(run, episode.id) if run.ledger.is_file() else ({}, {})
        return Found(episode, f"{path}:{after}", run, entry, game)
    run = RunFolder(policy.existing(before))
    entry, game = _recorded(run, after)
    if not entry:
        raise InputError("an episode's id stands in the run's ledger", after, "see the table episodes of ledger.db")
    if entry["file"] is None:
        found = f"{after}, which is {entry['state']} ({entry['cause'] or 'no cause'})"
        raise InputError("an episode that was played to its end has a transcript", found, "look at another one")
    path = run.episodes / entry["file"]
    return Found(_row(path, str(entry["row"])), f"{path}:{entry['row']}", run, entry, game)


def _row(path: Path, row: str) -> Episode:
    block = transcripts.read(path)
    if not row.isdecimal() or int(row) >= len(block):
        raise InputError(f"{path.name} has rows 0 to {len(block) - 1}", row, "give one of these")
    return block[int(row)]


def _recorded(run: RunFolder, id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger's rows of an episode and of its game; empty ones when it knows none."""
    ledger = Ledger(run.ledger, readonly=True)
    try:
        (entry,) = ledger.get([id])
        try:
            (game,) = ledger.get([entry["game_id"]], "games")
        except InvariantError:  # an evaluation's episode belongs to no game
            game = {}
    except InvariantError:
        return {}, {}
    finally:
        ledger.close()
    return entry, game


def _newest(run: RunFolder, cfg: Config, role: str) -> Path:
    """The folder of the role's newest checkpoint, else the model that it starts from."""
    folders = (run.read_state() or {"folders": {}})["folders"]
    return run.absolute(folders[role]) if role in folders else build.model_dir(cfg, role)


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


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
