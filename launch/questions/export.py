"""`ssp bank RUN --export FILE|DIR`: questions as a file or a data set."""

from __future__ import annotations

import errno
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from ssp.base.errors import InputError
from ssp.base.printable import say
from ssp.data.writers import SCORED, fits_search_r1
from ssp.game.protocols import training_prompt
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import files, reader
from ssp.selfplay.questions.records import VALID, Record


def check(args: Namespace) -> None:
    """What can be refused before anything is read."""
    if args.export.exists():
        raise InputError("an export is a new file or folder", args.export, "remove it or choose another")
    if args.transcripts and args.format == "search-r1":
        raise InputError("transcripts have no place in Search-R1's columns", "--transcripts", "leave it out")
    if args.source is not None and args.format != "search-r1":
        raise InputError(
            "--source is for --format search-r1", "all fields", "leave it out: they say where each is from"
        )
    for flag in ("license", "source"):
        said = getattr(args, flag)
        if said is not None and not said.strip():
            raise InputError(f"--{flag} is a name", f"{said!r}", f"type one, or leave --{flag} out")


def write(args: Namespace, records: Sequence[Record], run: RunFolder | None) -> None:
    """Write the export, and say what it has and has not."""
    kind = args.format or "bank"
    accepted = [record for record in records if kind == "bank" or record.verdict == VALID]
    prompt = training_prompt()
    kept = [record for record in accepted if kind == "bank" or fits_search_r1(record.as_question(), prompt)]
    if not kept:
        raise InputError("an export holds at least one question", f"{args.bank}: none is left", "ask for less")
    if args.transcripts:
        kept = kept if run is None else reader.told(run, kept)
        told = [*(x.transcript for r in kept for x in r.plays), *(x.transcript for r in kept for x in r.attempts)]
        if not any(told):
            raise InputError(
                "--transcripts exports texts of episodes", f"{args.bank} has none", "export the run itself"
            )
    if args.license:
        kept = [replace(record, license=args.license.strip()) for record in kept]
    if args.source:
        kept = [replace(record, data_source=args.source.strip()) for record in kept]
    try:
        if not args.export.suffix:
            files.write_folder(args.export, kept, kind)
        elif kind == "bank" and args.export.suffix != ".parquet":
            rule = "a bank is exported to a .parquet file, or to a folder, whose name has no ending"
            raise InputError(rule, args.export, "give it such a name")
        else:
            files.WRITERS[kind](args.export, kept)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError("an export can be written", f"{args.export} ({error})", "give another path") from error
    lost = {"no referee accepted": len(records) - len(accepted), "such a row would change": len(accepted) - len(kept)}
    said = "".join(f" ({number:,} left out, which {why})" for why, number in lost.items() if number)
    say(f"{args.export}: {len(kept):,} questions, {kind}{said}")
    unknown = sorted({record.data_source for record in kept} - set(SCORED))
    if kind == "search-r1" and unknown:
        say(f"data_source {unknown[0]}: Search-R1's own scorer knows only {', '.join(SCORED)} (--source nq)")
