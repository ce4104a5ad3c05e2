"""`ssp download`: published data sets, indexes and models, by short name or as org/name; a GGUF
file as a model folder."""

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from launch.cli import Parser, run
from ssp.base import models
from ssp.base.errors import hold
from ssp.base.printable import say
from ssp.base.published import PUBLISHED, PublishedFile
from ssp.telemetry.terminal import Terminal, table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every file is there and checked. InputError and Fault: see
    `ssp.data.hub.download`."""
    args = _parser().parse_args(argv)
    if args.list:
        sizes = {
            name: f"{item.gigabytes:g}" if item.gigabytes else "-"
            for name, item in PUBLISHED.items()
        }
        rows = [
            (name, item.type, sizes[name], item.repo, item.about)
            for name, item in PUBLISHED.items()
        ]
        Terminal().print(table(("name", "type", "GB", "repository", "what"), rows))
        return 0
    folder = (args.to or models.fetched(args.name or "")).expanduser()
    if packed := _packed(args):
        from ssp.engines.gguf import convert

        done = "made" if convert(packed[0], folder, packed[1]) else "is there, checksums right"
        say(f"{args.name}: {folder}, {done}")
        return 0
    item = _item(args)

    from huggingface_hub import logging
    from huggingface_hub.utils import disable_progress_bars

    from ssp.data import hub

    logging.set_verbosity_error()  # its warnings show addresses, which may be signed
    if not sys.stderr.isatty():
        disable_progress_bars()
    hub.download(item, folder, args.unpack, say)
    say(f"{args.name}: {folder}")
    return 0


def _packed(args: Namespace) -> tuple[Path, str] | None:
    """The GGUF that the arguments name, a file or one in a package, and its SHA-256 where that is
    known."""
    name, item = args.name or "", PUBLISHED.get(args.name)
    packed = item is not None and item.type == "package"
    if not packed and not name.endswith(".gguf"):
        return None
    rule, found = (
        "--type, --only, --revision and --unpack are for repositories of the hub",
        f"given with {name}",
    )
    hold(
        not args.type and not args.only and not args.revision and not args.unpack,
        rule,
        found,
        "leave them out",
    )
    if item is not None:
        return item.installed(), item.sha256[item.files[0]]
    hold(args.to, "the model of a GGUF file gets a folder", f"none for {name}", "give --to DIR")
    return Path(name).expanduser(), ""


def _item(args: Namespace) -> PublishedFile:
    """The entry that the arguments name, with their changes."""
    item = PUBLISHED.get(args.name)
    if item is None:
        rule, name = "ssp download takes a name of the list, or org/name", args.name or "none"
        hold(name.count("/") == 1, rule, name, "see ssp download --list")
        hold(
            args.type,
            "org/name comes with its type",
            args.name,
            "give --type dataset or --type model",
        )
        item = PublishedFile(args.name, args.type)
    if args.revision:
        item = dataclasses.replace(item, revision=args.revision, sha256={})
    if args.only:
        # some of the parts make no whole
        item = dataclasses.replace(item, files=tuple(args.only), join="")
    return item


def _parser() -> Parser:
    parser = Parser(
        "download",
        "Fetch a published data set, index or model; run again, an interrupted one goes on.",
    )
    parser.add_argument("name", nargs="?", help="a short name (--list), org/name, or a GGUF file")
    parser.add_argument("--list", action="store_true", help="show the short names")
    parser.add_argument("--type", choices=("dataset", "model"), help="of org/name")
    parser.add_argument(
        "--to", type=Path, metavar="DIR", help="folder of its own (default: hub/NAME in the cache)"
    )
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="files, e.g. 'nq/*'; may be repeated"
    )
    parser.add_argument(
        "--revision", help="branch, tag or commit (default: the one known to be right, or main)"
    )
    parser.add_argument(
        "--unpack",
        action="store_true",
        help="also join part_* files and unpack .gz files beside them",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
