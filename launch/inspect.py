"""`ssp inspect RUN:EPISODE`: shows an episode segment by segment, with its mask; and prices it
again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from launch import policy
from launch.cli import Parser, options, run
from launch.shown import golds, transcript
from ssp.base.episode import Episode
from ssp.base.errors import hold
from ssp.base.models import existing
from ssp.base.tokenlog import Kind, TokenLog
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.game.protocols.bare import decode
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ssp.views.replay.record import RecordedEpisode


def main(argv: Sequence[str]) -> int:
    """Run the command. Returns 0, or 1 when --check finds another parse or reward than the one on
    record."""
    summary = "Show an episode of a run, with its mask."
    args = options(argv, "inspect", summary, flags)
    # Here, because --help needs none of it.
    from ssp.selfplay.workers import build
    from ssp.views.replay import priced
    from ssp.views.replay.record import Records
    from ssp.views.replay.round import repriced

    recorded = find(args.episode)
    folder = recorded.run
    episode = recorded.episode
    cfg = RunReader(folder, args.trust_code).cfg
    role = episode.role
    saved = (folder.read_state() or {"folders": {}})["folders"]
    if args.tokenizer:
        start = args.tokenizer
    else:
        start = folder.path / saved[role] if role in saved else build.model_dir(cfg, role, folder)
    tokenizer = build.tokenizer(start)
    console = Terminal(soft_wrap=True)

    console.print(_header(recorded))
    if args.tokens:
        shown = _tokens(episode.log, tokenizer)
    else:
        shown = _segments(episode, cfg, tokenizer, recorded.entry["kind"])
    for line in shown:
        console.print(line)
    answers = golds.recorded(cfg, recorded)
    right = golds.right(cfg, episode.final, answers)
    console.print(transcript.outcome(episode, answers, right))
    if not args.check:
        return 0

    results = priced.check(episode, cfg, tokenizer, recorded.entry, recorded.game)
    if recorded.game and not priced.paid_alone(cfg, recorded.entry):
        # The game prices it by others: the whole round is settled again.
        records = Records(folder, args.trust_code)
        entry = recorded.entry
        results = [*results[:-1], *repriced(records.reader, records.cfg, records.targets, entry)]
    for result in results:
        console.print(transcript.comparison(result))
    return 0 if all(result.same for result in results) else 1


def find(text: str) -> RecordedEpisode:
    """The episode that `text` names. InputError when there is none."""
    from ssp.views.replay import record

    run, _, id = text.partition(":")
    typed = shlex.quote(run) if run else "RUN"
    hold(id, "an episode is RUN:EPISODE", text, f"`ssp bank {typed} --episodes` lists the ids")
    return record.named(RunFolder(existing(run)), id)


def _header(recorded: RecordedEpisode) -> Text:
    """What is on record, a line a subject."""
    episode = recorded.episode
    entry = recorded.entry
    game = recorded.game
    log = recorded.episode.log
    played = f"{episode.role}, attempt {episode.attempt}, game {episode.game}"
    tokens = f"{len(log)} tokens, {log.mask.sum()} trained"
    known = [str(entry[name]) for name in ("state", "outcome", "cause") if entry[name] is not None]
    reward = "none" if entry["reward"] is None else format(entry["reward"], "g")
    lines = {
        "episode": f"{episode.id}  ({played})",
        "file": recorded.place,
        "stopped": f"{episode.stopped}, {len(episode.queries)} searches, {tokens}",
        "versions": "{} to {}".format(*log.version_span),
        "outcome": f"{' '.join(known)}, reward {reward}",
    }
    if entry["commit_step"] is not None:
        lines["trained"] = f"step {entry['commit_step']} of {entry['commit_role']}"
    if game:
        rate = "unknown" if game["win_rate"] is None else f"{game['win_rate']:.2f}"
        lines["question"] = f"{game['question']}  → {game['target'] or 'no answer'}"
        verdict = " ".join(filter(None, (game["verdict"], game["rule"])))
        lines["verdict"] = f"{verdict}, {game['attempts']} attempts, win rate {rate}"
    shown = [
        Text(f"{name:>11}  ", style="dim").append(text, style="none")
        for name, text in lines.items()
    ]
    return Text("\n").join(shown)


def _segments(
    episode: Episode, cfg: Config, tokenizer: PreTrainedTokenizerBase, stage: str
) -> Iterator[Text]:
    """A heading a stretch of the log, and its text in the transcript's colours."""
    protocol = protocols.get(cfg.protocol).asking(cfg.spec.prompts).naming(episode.tools)
    prompt = cfg.spec.prompt(stage, episode.role)
    for kind, start, end in episode.log.stretches():
        trained = int(episode.log.mask[start:end].sum())
        heading = f"-- {kind.name.lower()}: {end - start} tokens, {trained} trained"
        yield Text(heading, style="dim italic")
        text = decode(tokenizer, episode.log.ids[start:end])
        yield transcript.piece(protocol, prompt, kind, text)


def _tokens(log: TokenLog, tokenizer: PreTrainedTokenizerBase) -> Iterator[Text]:
    """One line a token."""
    heading = (
        f"{'place':>6} {'id':>7} {'kind':<12} {'mask':<5} {'log-prob':>9} {'version':>7}  text"
    )
    yield Text(heading, style="bold")
    for at, id in enumerate(log.ids):
        kind = Kind(log.kinds[at])
        logprob = "-"
        version = "-"
        if log.versions[at] >= 0:
            logprob = f"{log.logprobs[at]:.4f}"
            version = str(log.versions[at])
        line = f"{at:>6} {id:>7} {kind.name.lower():<12} {int(log.mask[at]):<5}"
        line += f" {logprob:>9} {version:>7}  {decode(tokenizer, [id])!r}"
        yield Text(line, style=transcript.COLOURS[kind])


def flags(parser: Parser) -> None:
    """The options of `ssp inspect`."""
    add = parser.add_argument
    add("episode", metavar="RUN:EPISODE", help="a run, and the id of one of its episodes")
    add("--tokens", action="store_true", help="list every token: id, kind, mask, log-prob, version")
    add(
        "--check", action="store_true", help="parse and price it again, and compare with the record"
    )
    policy.trust_flag(parser)
    add("--tokenizer", type=Path, metavar="DIR", help="default: that of the run's checkpoint")


if __name__ == "__main__":
    raise SystemExit(run(main))
