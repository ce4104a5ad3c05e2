"""Good episodes of an earlier run, as they were played: rejection-sampling fine-tuning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ssp.base.episode import PROPOSER, Episode, Outcome
from ssp.base.errors import InputError
from ssp.game.protocols.renderer import Renderer
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder


def episodes(folder: Path, role: str, least_reward: float, renderer: Renderer) -> list[Episode]:
    """The good episodes of `role` in the run `folder`, in order of their ids; outcome scored.

    InputError: no run, none that is good, or transcripts of another tokenizer.
    """
    run = RunFolder(folder)
    if not run.config.is_file() or not run.ledger.is_file():
        raise InputError("warmup.data is a jsonl file of traces, or a run's folder", folder, "give another path")
    reader = RunReader(run)
    with reader.ledger() as ledger:
        rows = ledger.earned(role, 0.0 if role == PROPOSER else least_reward)
    if not rows:
        wanted = "accepted questions that an attempt answered" if role == PROPOSER else f"rewards >= {least_reward:g}"
        raise InputError(
            f"the run holds episodes of the {role} to learn from", f"no {wanted} in {folder}", "take another"
        )
    by_file = sorted(rows, key=lambda row: row["file"] or "")  # a file is read once
    chosen = [reader.episode(row) for row in by_file]
    for episode in chosen:
        if renderer.decode(episode.log.ids) != episode.text:
            rule = "a run's episodes are in the tokens of the policy that learns from them"
            raise InputError(rule, f"episode {episode.id} reads otherwise", "take a run of this model's family")
    return [replace(episode, outcome=Outcome.SCORED) for episode in sorted(chosen, key=lambda e: e.id)]
