"""`ssp download`: published data sets, indexes and models, by short name or as org/name; a GGUF
file as a model folder."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch.cli import Parser, options, run
from ssp.base import models
from ssp.base.errors import hold
from ssp.base.printable import say
from ssp.base.published import PUBLISHED, PublishedFile
from ssp.telemetry.terminal import Terminal, table

_INSTALLED = ("package", "adapter")
"""Types whose files lie in installed packages, so that nothing is fetched."""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 when every file is there and checked. InputError and Fault: see
    `ssp.data.hub.download`."""
    summary = "Fetch a published data set, index or model; run again, an interrupted one goes on."
    args = options(argv, "download", summary, flags)
    if args.list:
        rows = []
        for name, listed in PUBLISHED.items():
            size = f"{listed.gigabytes:g}" if listed.gigabytes else "-"
            rows.append((name, listed.type, size, listed.repo, listed.about))
        Terminal().print(table(("name", "type", "GB", "repository", "what"), rows))
        return 0
    folder = (args.to or models.fetched(args.name or "")).expanduser()
    known = PUBLISHED.get(args.name)
    if str(args.name).endswith(".gguf") or (known is not None and known.type in _INSTALLED):
        rule = "--type, --only, --revision and --unpack are for repositories of the hub"
        of_the_hub = args.type or args.only or args.revision or args.unpack
        hold(not of_the_hub, rule, f"given with {args.name}", "leave them out")
        if known is not None and known.type == "adapter":
            made = make_adapted(known, folder)
        else:
            made = make_model(args, known, folder)
        done = "made" if made else "is there, checksums right"
        say(f"{args.name}: {folder}, {done}")
        return 0
    wanted = known
    if wanted is None:
        rule = "ssp download takes a name of the list, or org/name"
        name = args.name or "none"
        hold(name.count("/") == 1, rule, name, "see ssp download --list")
        step = "give --type dataset or --type model"
        hold(args.type, "org/name comes with its type", args.name, step)
        wanted = PublishedFile(args.name, args.type)
    if args.revision:
        wanted = replace(wanted, revision=args.revision, sha256={})
    if args.only:
        # some of the parts make no whole
        wanted = replace(wanted, files=tuple(args.only), join="")

    from huggingface_hub import logging
    from huggingface_hub.utils import disable_progress_bars

    from ssp.data import hub

    logging.set_verbosity_error()  # its warnings show addresses, which may be signed
    if not sys.stderr.isatty():
        disable_progress_bars()
    hub.download(wanted, folder, args.unpack, say)
    say(f"{args.name}: {folder}")
    return 0


def make_adapted(known: PublishedFile, folder: Path) -> bool:
    """Make a model folder of the `known` adapter and its base model, which is made too where it is
    not there. False: it is there already."""
    from ssp.engines import adapted
    from ssp.engines.gguf import convert

    adapter = known.installed()
    base = models.fetched(known.repo)
    if not base.is_dir():
        packed = PUBLISHED[known.repo]
        convert(packed.installed(), base, packed.sha256[packed.files[0]])
    return adapted.make(adapter, base, folder, known.sha256[known.files[0]])


def make_model(args: Namespace, known: PublishedFile | None, folder: Path) -> bool:
    """Make a model folder of the GGUF that the arguments name: a file, or one in the `known`
    package, whose SHA-256 is known. False: it is there already."""
    if known is not None:
        gguf = known.installed()
        digest = known.sha256[known.files[0]]
    else:
        rule = "the model of a GGUF file gets a folder"
        hold(args.to, rule, f"none for {args.name}", "give --to DIR")
        gguf = Path(args.name).expanduser()
        digest = ""
    from ssp.engines.gguf import convert

    return convert(gguf, folder, digest)


def flags(parser: Parser) -> None:
    """The options of `ssp download`."""
    add = parser.add_argument
    add("name", nargs="?", help="a short name (--list), org/name, or a GGUF file")
    add("--list", action="store_true", help="show the short names")
    add("--type", choices=("dataset", "model"), help="of org/name")
    add("--to", type=Path, metavar="DIR", help="folder of its own (default: hub/NAME in the cache)")
    add("--only", action="append", metavar="PATTERN", help="files, e.g. 'nq/*'; may be repeated")
    add("--revision", help="branch, tag or commit (default: the one known to be right, or main)")
    add(
        "--unpack",
        action="store_true",
        help="also join part_* files and unpack .gz files beside them",
    )


if __name__ == "__main__":
    raise SystemExit(run(main))
