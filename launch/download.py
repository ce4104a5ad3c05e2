"""`ssp download`: published data sets, indexes and models, by short name or as org/name."""

from __future__ import annotations

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from launch.cli import Parser
from ssp.base import models
from ssp.base.errors import InputError
from ssp.base.printable import say
from ssp.data.published import PUBLISHED, Published

TYPES = ("dataset", "model")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every file is there and checked. InputError and Fault: see `ssp.data.hub.download`."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    if args.list:
        say(_table())
        return 0
    item = _item(args)
    folder = args.to or models.fetched(item.repo if item.type == "model" else args.name)

    from huggingface_hub import logging
    from huggingface_hub.utils import disable_progress_bars

    from ssp.data import hub

    logging.set_verbosity_error()  # its warnings show addresses, which may be signed
    if not sys.stderr.isatty():
        disable_progress_bars()
    hub.download(item, folder.expanduser(), args.unpack)
    say(f"{args.name}: {folder}")
    return 0


def _item(args: Namespace) -> Published:
    """The entry that the arguments name, with their changes."""
    if not args.name:
        raise InputError("ssp download takes a name", "none", "see ssp download --list")
    if args.name in PUBLISHED:
        item = PUBLISHED[args.name]
        if args.type and args.type != item.type:
            raise InputError(f"{args.name} is a {item.type}", f"--type {args.type}", "leave --type out")
    elif args.name.count("/") == 1:
        if not args.type:
            raise InputError("org/name comes with its type", args.name, "give --type dataset or --type model")
        item = Published(args.name, args.type)
    else:
        raise InputError("a name is in the list, or org/name", args.name, "see ssp download --list")
    if args.revision:
        item = dataclasses.replace(item, revision=args.revision, sha256={})
    if args.only:
        item = dataclasses.replace(item, files=tuple(args.only), join="")  # some of the parts make no whole
    return item


def _table() -> str:
    rows = [("name", "type", "GB", "repository", "what")]
    for name, item in PUBLISHED.items():
        rows.append((name, item.type, f"{item.gigabytes:g}" if item.gigabytes else "-", item.repo, item.about))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _parser() -> Parser:
    parser = Parser(
        "download", "Fetch a published data set, index or model. An interrupted download goes on when run again."
    )
    parser.add_argument("name", nargs="?", help="a short name (--list), or org/name")
    parser.add_argument("--list", action="store_true", help="show the short names")
    parser.add_argument("--type", choices=TYPES, help="of org/name")
    parser.add_argument("--to", type=Path, metavar="DIR", help="folder of its own (default: hub/NAME in the cache)")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="files, e.g. 'nq/*'; may be repeated")
    parser.add_argument(
        "--revision", help="branch, tag or commit (default: the one that is known to be right, or main)"
    )
    parser.add_argument(
        "--unpack", action="store_true", help="also join part_* files and unpack .gz files, beside them"
    )
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
