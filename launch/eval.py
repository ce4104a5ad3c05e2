"""`ssp eval`: accuracy of a policy on evaluation sets, in one process.

Owns the command: which sets, which policy, the table, the rows' file. Promises the rollout of training at
`eval.temperature`, and that nothing is written unless every set was played. Refuses to know how episodes are played or
judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from launch.cli import Parsed, Parser, parse
from ssp import build, evaluation
from ssp.config.schema import Config, EvalSet
from ssp.data.readers import Question, read_eval
from ssp.episode import SOLVER
from ssp.errors import InputError
from ssp.world import files


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when a set has no scored question (every episode void)."""
    parsed = _arguments(sys.argv[1:] if argv is None else argv)
    args, cfg = parsed.flags, parsed.load()
    torch.set_num_threads(1)  # small matrices: a second thread costs more than it brings
    if args.data:
        cfg.data.eval = _sets(args.data, args.corpus, cfg.data.corpus)
    elif args.corpus:
        raise InputError("--corpus is of --data", f"--corpus {args.corpus} alone", "give --data, or set data.eval")
    if not cfg.data.eval:
        raise InputError("ssp eval needs an evaluation set", "data.eval=[]", "give --data FILE, or a set in data.eval")
    _check_out(args.out)
    folder = build.policy_dir(cfg, args.policy)
    corpora = [item.corpus for item in cfg.data.eval]
    play = build.player(cfg, SOLVER, folder, build.search(cfg, corpora), cfg.eval.temperature)
    console = Console()
    console.print(f"policy {folder}, temperature {cfg.eval.temperature:g}, seed {cfg.seed}", soft_wrap=True)
    results: dict[str, evaluation.Result] = {}
    for item in cfg.data.eval:
        started = time.perf_counter()
        questions = _questions(cfg, item, own=bool(args.data), per_hop=args.per_hop)
        results[item.name] = evaluation.evaluate(play, questions, cfg.seed, item.corpus, f"eval/{item.name}")
        console.print(table(item, results[item.name].summary, time.perf_counter() - started))
    if args.out:
        evaluation.write_rows(args.out, {name: result.rows for name, result in results.items()})
        console.print(f"rows: {args.out}", soft_wrap=True)
    return 0 if all(result.summary["items"] for result in results.values()) else 1


def table(item: EvalSet, summary: dict[str, float], seconds: float) -> Table:
    """One set's figures: a line for each hop count, then the whole, with 95 % intervals (Wilson)."""
    void, searches = int(summary["void"]), summary.get("searches", 0.0)
    caption = f"{searches:.2f} searches a question, {void} void (left out), {seconds:.1f} s"
    shown = Table(title=f"{item.name}: {item.file} in {item.corpus}", caption=caption)
    for heading in ("questions", "scored", "accuracy", "95 % interval"):
        shown.add_column(heading, justify="left" if heading == "questions" else "right")
    hops = sorted(name.removeprefix("accuracy_") for name in summary if name.endswith("hop") and "accuracy" in name)
    for name in [*hops, ""]:
        suffix = f"_{name}" if name else ""
        if f"accuracy{suffix}" in summary:
            share, items = summary[f"accuracy{suffix}"], summary[f"items{suffix}"]
            low, high = evaluation.interval(share, items)
            shown.add_row(name or "all", f"{items:.0f}", f"{share:.1%}", f"{low:.1%} to {high:.1%}")
    if "accuracy_mean123" in summary:
        shown.add_row("mean of 1-3hop", "", f"{summary['accuracy_mean123']:.1%}", "")
    return shown


def _questions(cfg: Config, item: EvalSet, own: bool, per_hop: int | None) -> list[Question]:
    """A set's questions: of `--data` all, of a configured set those that training's last evaluation asks."""
    questions = read_eval(files.resolve(item.file, "eval", cfg))
    if not own:
        questions = [q for q in questions if not q.hops or q.hops in cfg.eval.hops]
        per_hop = per_hop or cfg.eval.final_questions_per_hop
    return questions if per_hop is None else evaluation.select(questions, per_hop)


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "--policy", metavar="DIR", help="policy folder or run folder; default: the solver's start model"
    )
    parser.add_argument("--data", nargs="+", default=[], metavar="FILE", help="FlashRAG jsonl files, or world:heldout")
    parser.add_argument("--corpus", help="corpus of --data; default: its own world, else data.corpus; none: no search")
    parser.add_argument("--per-hop", type=_count, help="questions a hop; default: the config's, or all of --data")
    parser.add_argument("--out", metavar="FILE", help="write one JSON line a question here")


def _arguments(argv: Sequence[str]) -> Parsed:
    """`--data` takes every word that follows it, so that settings typed after its files are sorted out here."""
    parsed = parse(argv, "eval", "Score a policy on evaluation sets.", _flags)
    words = parsed.flags.data
    parsed.flags.data = [word for word in words if "=" not in word]
    return replace(parsed, overrides=[*parsed.overrides, *(word for word in words if "=" in word)])


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1, not {text}")
    return int(text)


def _sets(paths: Sequence[str], corpus: str | None, default: str) -> list[EvalSet]:
    """One set a file, named by its stem. Without --corpus a generated world's questions are searched in that world."""
    sets = [
        EvalSet(path, path, corpus or path)
        if path.startswith(files.PREFIX)
        else EvalSet(Path(path).stem, path, corpus or default)
        for path in paths
    ]
    names = [item.name for item in sets]
    if len(set(names)) < len(names):
        raise InputError("the files of --data have different names", ", ".join(paths), "rename one of them")
    return sets


def _check_out(out: str | None) -> None:
    if out and (Path(out).is_dir() or not Path(out).absolute().parent.is_dir()):
        raise InputError("--out is a file in an existing folder", out, "make the folder or give another path")


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
