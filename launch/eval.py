"""`ssp eval`: scores of a policy, or of a file of predictions, on evaluation sets, in one process.

Owns the command: which sets, which policy, how it is asked, the files. Promises that every question is scored exactly
once, that the same command prints and writes the same bytes again (greedy, or from the seed), that the files are
written when every set was played, and that an evaluation which was ended goes on where it was. Refuses to know how
episodes are played or answers are scored.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch import policy
from launch.cli import Parsed, Parser, parse, temperature, whole
from launch.records import evaltable
from ssp.base.episode import SOLVER
from ssp.base.errors import InputError
from ssp.base.printable import say
from ssp.capacity.memory import find, size, threads
from ssp.config.load import to_yaml
from ssp.config.schema import Config, EvalSet
from ssp.data.readers import Question, read_questions
from ssp.game import corpora, evaluation
from ssp.game.evaluation import Kept, Play, Row, methods, predictions
from ssp.game.judge import AnswerJudge, Item
from ssp.game.rollout import Search, lengths
from ssp.game.world import files
from ssp.search.known import RecordedSearch
from ssp.telemetry.terminal import Terminal, followed

BATCH, CACHE_SHARE = 256, 0.5
"""Questions at once, at most: as many as keep their cache in this share of the free memory. No result depends on it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when a set has no scored question (every episode void)."""
    from ssp.selfplay.workers import build

    parsed = _arguments(sys.argv[1:] if argv is None else argv)
    args = parsed.flags
    _check_files(args)
    named = policy.parse(args)
    cfg = named.config(args.config, parsed.overrides)
    threads.use(threads.alone(cfg))
    judge = None if cfg.judge.kind == "exact" else build.judge(cfg)
    if judge is not None:
        judge.check()
    console, kept = Terminal(), Kept(None, "")
    if args.predictions:
        asked = _sets(args.data, None, "")
        rows = predictions.read(
            args.predictions, {s.name: _questions(cfg, s, True, None) for s in asked}, cfg.judge.fold
        )
    else:
        rows, kept = _play(cfg, args, named, console)
    if judge is not None:
        rows = {name: _judged(judge, found) for name, found in rows.items()}
    lines = {name: evaluation.lines(name, found, cfg.seed, _ks(args), cfg.judge.fold) for name, found in rows.items()}
    evaltable.show(console, lines, rows, cfg.retriever.topk)
    if args.out:
        evaluation.write_rows(args.out, rows)
        kept.close(done=True)
        console.print(f"rows: {args.out}", soft_wrap=True)
    if args.summary:
        evaltable.write(args.summary, lines)
        console.print(f"summary: {args.summary}", soft_wrap=True)
    return 0 if all(any(row.scored for row in found) for found in rows.values()) else 1


def _play(
    cfg: Config, args: argparse.Namespace, named: policy.Policy, console: Terminal
) -> tuple[dict[str, list[Row]], Kept]:
    """Every set's rows, and where they are kept. All files are read, and all parts made, before the first question."""
    from ssp.selfplay.workers import build

    sets = _sets(args.data, args.corpus, cfg.data.corpus) if args.data else cfg.data.eval
    if not args.data and args.corpus:
        raise InputError("--corpus is of --data", f"--corpus {args.corpus} alone", "give --data, or set data.eval")
    if not sets:
        raise InputError("ssp eval needs an evaluation set", "data.eval=[]", "give --data FILE, or a set in data.eval")
    if args.samples > 1 and args.temperature == 0:
        raise InputError("greedy samples are all the same", f"--samples {args.samples}", "give --temperature 1")
    questions = {item.name: _questions(cfg, item, own=bool(args.data), per_hop=args.per_hop) for item in sets}
    kept = Kept(Path(args.out) if args.out else None, _mark(cfg, args, named, questions), cfg.judge.fold)
    if kept.rows:
        say(f"{kept.path}: {len(kept.rows)} rows are there already", file=sys.stderr)
    search = _search(cfg, args, [item.corpus for item in sets])
    play = _player(cfg, args, named, search, console)
    asked = [question.question for found in questions.values() for question in found]
    build.check_words(build.tokenizer(named.folder(cfg)), asked)
    if args.method == methods.AGENT:
        _warn(cfg, named.folder(cfg), asked, [item.corpus for item in sets])
    batch = args.batch or _batch(cfg, named.folder(cfg))
    rows = {}
    try:
        for item in sets:
            found = questions[item.name]
            tasks = evaluation.make_tasks(found, cfg.seed, item.corpus, f"eval/{item.name}", args.samples)
            with followed(item.name, len(tasks)) as moved:
                rows[item.name] = kept.played(item.name, found, tasks, play, batch, moved)
    except KeyboardInterrupt:
        if kept.path:
            say(f"{len(kept.rows)} rows are kept in {kept.path}: the same command goes on from there", file=sys.stderr)
        raise
    finally:
        kept.close()
    if isinstance(search, RecordedSearch):
        searches = search.hits + search.misses
        share = search.hits / searches if searches else 1.0
        console.print(f"searches: {searches}, from the record {search.hits} ({share:.1%})")
        search.close()
    return rows, kept


def _warn(cfg: Config, folder: Path, questions: Sequence[str], names: list[str]) -> None:
    """What of the questions and the corpora does not fit the limits, before hours of play."""
    from ssp.selfplay.workers import build

    passages = [document for path in corpora.named(cfg, names).values() for document in corpora.sample(path)]
    prompts = [{"question": question} for question in corpora.spread(questions)]
    for note in lengths.notes(SOLVER, cfg.solver, build.renderer(cfg, SOLVER, folder), prompts, passages):
        say(f"warning: {note}", file=sys.stderr)


def _search(cfg: Config, args: argparse.Namespace, names: list[str]) -> Search:
    if not (args.record or args.replay):
        return corpora.search(cfg, names)
    return corpora.recorded(cfg, names, Path(args.record or args.replay), args.cache_ttl, bool(args.replay))


def _batch(cfg: Config, folder: Path) -> int:
    """Questions at once, by the memory that is free now."""
    from ssp.capacity.memory.engine import engine, fitting
    from ssp.capacity.placement import machine

    free, model = machine.free_bytes(), find(str(folder))
    batch = min(BATCH, fitting(model, cfg.solver, int(CACHE_SHARE * free)))
    if batch < BATCH:
        cache = size(sum(n.bytes for n in engine(model, cfg.solver, BATCH).needs if n.what == "KV cache"))
        each = f"{BATCH} would keep up to {cache} of cache at {cfg.solver.limits.longest} tokens each"
        say(f"{batch} questions at once (--batch): {each}, and {size(free)} of memory are free", file=sys.stderr)
    return batch


def _mark(cfg: Config, args: argparse.Namespace, named: policy.Policy, questions: object) -> str:
    """What stands for all that decides the rows."""
    names = [args.corpus] if args.corpus else [item.corpus for item in cfg.data.eval]
    asked = args.method, args.temperature, args.samples, args.replay, named.url, named.model
    places = [named.folder(cfg), *corpora.named(cfg, [corpora.TRAIN, *names]).values()]
    return evaluation.mark((to_yaml(cfg), asked, questions), places)


def _player(cfg: Config, args: argparse.Namespace, named: policy.Policy, search: Search, console: Terminal) -> Play:
    from ssp.selfplay.workers import build

    folder = named.folder(cfg)
    asked = f"method {args.method}, temperature {args.temperature:g}, seed {cfg.seed}"
    console.print(f"policy {named.shown(folder)}, {asked}", soft_wrap=True)
    if args.method == methods.AGENT:
        return build.player(cfg, SOLVER, folder, search, args.temperature)
    return build.baseline(cfg, SOLVER, folder, search, args.temperature, args.method)


def _questions(cfg: Config, item: EvalSet, own: bool, per_hop: int | None) -> list[Question]:
    """A set's questions: of `--data` all, of a configured set those that training's last evaluation asks."""
    questions = read_questions(files.resolve(item.file, "eval"))
    if not own:
        questions = [q for q in questions if not q.hops or q.hops in cfg.eval.hops]
        per_hop = per_hop or cfg.eval.final_questions_per_hop
    return questions if per_hop is None else evaluation.select(questions, per_hop)


def _judged(judge: AnswerJudge, rows: list[Row]) -> list[Row]:
    """The rows with the judge's word; where it gave none, why."""
    scored = [row for row in rows if row.scored]
    decisions = judge.decide([Item(row.question, row.golden_answers, row.prediction) for row in scored])
    found = iter(decisions)
    return [row.with_decision(next(found)) if row.scored else row for row in rows]


def _ks(args: argparse.Namespace) -> list[int]:
    return args.k or ([1, args.samples] if args.samples > 1 else [])


def _flags(parser: Parser) -> None:
    policy.add_flags(parser)
    parser.add_argument("--data", nargs="+", default=[], metavar="FILE", help="question files, or world:heldout")
    parser.add_argument("--corpus", help="corpus of --data; default: its own world, else data.corpus; none: no search")
    parser.add_argument("--per-hop", type=whole(1), help="questions a hop; default: the config's, or all of --data")
    parser.add_argument("--method", default=methods.AGENT, help=f"{', '.join((methods.AGENT, *methods.METHODS))}")
    parser.add_argument("--temperature", type=temperature, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--samples", type=whole(1), default=1, help="samples a question, for pass@k")
    parser.add_argument("--k", type=_counts, default=[], metavar="1,2,4", help="the k of pass@k; default: 1 and all")
    parser.add_argument("--batch", type=whole(1), default=0, help="questions at once; default: by free memory")
    parser.add_argument("--record", metavar="FILE", help="keep every search's answer here, and ask nothing twice")
    parser.add_argument("--replay", metavar="FILE", help="take every search's answer from here, and ask nothing")
    parser.add_argument("--cache-ttl", type=_seconds, default=0.0, metavar="SECONDS", help="until an answer is too old")
    parser.add_argument("--predictions", nargs="+", default=[], metavar="FILE", help="score these; nothing is played")
    parser.add_argument("--out", metavar="FILE", help="write one JSON line a question and sample here")
    parser.add_argument("--summary", metavar="FILE", help="write the table as JSON here, with its intervals")


def _arguments(argv: Sequence[str]) -> Parsed:
    """`--data` and `--predictions` take every word that follows: settings typed after their files are sorted out here."""
    parsed = parse(argv, "eval", "Score a policy, or predictions, on evaluation sets.", _flags)
    flags, settings = parsed.flags, []
    for name in ("data", "predictions"):
        words = getattr(flags, name)
        settings += [word for word in words if "=" in word]
        setattr(flags, name, [word for word in words if "=" not in word])
    if flags.method != methods.AGENT:
        methods.get(flags.method)
    if max(flags.k, default=0) > flags.samples and not flags.predictions:
        raise InputError("--k goes up to --samples", f"--k {max(flags.k)}, --samples {flags.samples}", "sample more")
    if (flags.record or flags.replay) and flags.predictions:
        raise InputError("a record of searches is of sets that are played", "--predictions", "leave --record out")
    if flags.record and flags.replay:
        raise InputError("--record asks what is not on record, --replay never asks", "both", "leave one of them out")
    if flags.cache_ttl and not (flags.record or flags.replay):
        raise InputError("--cache-ttl is of a record", "neither --record nor --replay", "give one of them")
    return replace(parsed, overrides=[*parsed.overrides, *settings])


def _seconds(text: str) -> float:
    value = float(text) if text.replace(".", "", 1).isdecimal() else 0.0
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"seconds, above 0, not {text}")
    return value


def _counts(text: str) -> list[int]:
    return sorted({whole(1)(part) for part in text.split(",")})


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


def _check_files(args: argparse.Namespace) -> None:
    """Where the results go: before hours of play, and no file is replaced."""
    wanted = [Path(path).absolute() for path in (args.out, args.summary) if path]
    for path in wanted:
        if not path.parent.is_dir() or (path.exists() and not path.is_file()):
            raise InputError(
                "--out and --summary are files in existing folders", path, "make the folder, or give another"
            )
        if not os.access(path.parent, os.W_OK):
            raise InputError("--out and --summary can be written", path, "give another place")
    read = [Path(path).absolute() for path in (*args.data, *args.predictions, args.corpus or "none")]
    for path in wanted:
        if wanted.count(path) > 1 or any(other.exists() and path.exists() and path.samefile(other) for other in read):
            raise InputError("--out and --summary are files of their own", path, "give another name")
        if path.exists():
            raise InputError("--out and --summary are new files", path, "remove it, or give another name")


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
