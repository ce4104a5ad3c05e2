"""`ssp eval`: scores of a policy, or of a file of predictions, on evaluation sets; each question
once, in one process."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from launch import policy
from launch.cli import Parsed, Parser, number, parse, run, temperature, whole, wholes
from launch.shown import evaltable
from ssp.base import devices
from ssp.base.errors import InputError, hold
from ssp.base.extras import extra
from ssp.base.printable import say
from ssp.capacity.memory import MB, find, threads
from ssp.capacity.memory.engine import fitting
from ssp.config import own
from ssp.config.load import to_yaml
from ssp.config.schema import Config, EvalSet
from ssp.data.readers import Question, read_questions
from ssp.game import corpora, evaluation
from ssp.game.evaluation import Kept, ScoredRow, TableLine, predictions
from ssp.game.judge import AnswerJudge, Item
from ssp.game.rollout import Search
from ssp.game.world import files
from ssp.search.known import RecordedSearch
from ssp.search.router import NO_CORPUS
from ssp.selfplay.workers import build
from ssp.telemetry.terminal import Terminal, followed

AGENT = "agent"
"""The protocol's own rollout; every other method is a baseline."""
BATCH, CACHE_SHARE = 256, 0.5
"""Questions at once, at most: as many as keep their cache in this share of the free memory. No
result depends on it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when a set has no scored question (every episode void)."""
    parsed = _arguments(argv)
    args = parsed.flags
    named = policy.parse(args)
    cfg = named.config(args.config, parsed.overrides)
    threads.use(threads.alone(cfg))
    judge = None if cfg.judge.kind == "exact" else build.judge(cfg)
    if judge is not None:
        judge.check()
    console, kept = Terminal(soft_wrap=True), Kept(None, "")
    if args.predictions:
        asked = {one.name: _questions(cfg, one, True, None) for one in _sets(args.data, None, "")}
        rows = predictions.read(args.predictions, asked)
    else:
        rows, kept = _play(cfg, args, named, console)
    if judge is not None:
        rows = {name: _judged(judge, found, cfg.judge.scores) for name, found in rows.items()}
    ks = args.k or ([1, args.samples] if args.samples > 1 else [])
    lines = {name: evaluation.lines(name, found, ks) for name, found in rows.items()}
    if args.out:  # the files first: who reads the table may go away
        evaluation.write_rows(args.out, rows)
        if kept.path:
            kept.path.unlink(missing_ok=True)
    averaged = _averaged([] if args.data or args.predictions else cfg.data.eval, lines)
    if args.summary:
        evaltable.write(args.summary, lines, averaged)
    evaltable.show(console, lines, averaged, rows, cfg.retriever.topk)
    for what in ("out", "summary"):
        if file := getattr(args, what):
            console.print(f"{'rows' if what == 'out' else what}: {file}")
    return 0 if all(any(row.scored for row in found) for found in rows.values()) else 1


def _play(
    cfg: Config, args: argparse.Namespace, named: policy.NamedPolicy, console: Terminal
) -> tuple[dict[str, list[ScoredRow]], Kept]:
    """Every set's rows, and where they are kept. All files are read, and all parts made, before the
    first question."""
    sets = _sets(args.data, args.corpus, cfg.data.corpus) if args.data else cfg.data.eval
    hold(
        sets,
        "ssp eval needs an evaluation set",
        "data.eval=[]",
        "give --data FILE, or a set in data.eval",
    )
    questions = {item.name: _questions(cfg, item, bool(args.data), args.per_hop) for item in sets}
    folder, corpus_names = named.folder(cfg), [item.corpus for item in sets]
    options = (
        args.method,
        args.temperature,
        args.samples,
        args.replay,
        named.url,
        named.model,
        own.prints(cfg),
    )
    spoken = [path] if (path := Path(cfg.protocol).expanduser()).is_file() else []
    places = [folder, *spoken, *corpora.named(cfg, [corpora.TRAIN, *corpus_names]).values()]
    kept = Kept(args.out, evaluation.mark((to_yaml(cfg), options, questions), places))
    if kept.rows:
        say(f"{kept.path}: {len(kept.rows)} rows are there already", file=sys.stderr)
    search = _opened(cfg, args, corpus_names)
    said = f"method {args.method}, temperature {args.temperature:g}, seed {cfg.seed}"
    said += f", searched: {', '.join(dict.fromkeys(corpus_names))}"
    console.print(f"policy {named.shown(folder)}, {said}", soft_wrap=True)
    asked = [question.question for found in questions.values() for question in found]
    if args.method == AGENT:
        play = build.player(cfg, cfg.spec.answerer, folder, search, args.temperature)
    else:
        play = _baselines(args.method).player(cfg, folder, search, args.temperature, args.method)
    build.check_words(build.tokenizer(folder), asked)
    batch, rows = args.batch or _batch(cfg, folder), {}
    try:
        for item in sets:
            found = questions[item.name]
            tasks = evaluation.make_tasks(
                found, cfg.seed, item.corpus, f"eval/{item.name}", args.samples, cfg.spec.examining
            )
            with followed(item.name, len(tasks)) as moved:
                rows[item.name] = kept.played(item.name, found, tasks, play, batch, moved)
    except KeyboardInterrupt:
        if kept.path:
            told = f"{len(kept.rows)} rows are kept in {kept.path}"
            say(f"{told}: the same command goes on from there", file=sys.stderr)
        raise
    if isinstance(search, RecordedSearch):
        searches = search.hits + search.misses
        console.print(
            f"searches: {searches}, from the record {search.hits}"
            f" ({search.hits / max(searches, 1):.1%})"
        )
        search.close()
    return rows, kept


def _baselines(method: str) -> ModuleType:
    return extra("baselines", f"--method {method}", "methods")


def _opened(cfg: Config, args: argparse.Namespace, corpus_names: Sequence[str]) -> Search:
    """The search of the sets' corpora; with --record or --replay by way of a record."""
    record = args.record or args.replay
    if not record:
        return corpora.search(cfg, corpus_names)
    return corpora.recorded(cfg, corpus_names, record, args.cache_ttl, bool(args.replay))


def _averaged(
    configured: Sequence[EvalSet], lines: dict[str, list[TableLine]]
) -> dict[str, TableLine]:
    """The sets that a macro average is of: all but those of the configuration in which nothing can
    be found."""
    silent = {item.name for item in configured if item.corpus == NO_CORPUS}
    return {name: found[-1] for name, found in lines.items() if name not in silent}


def _batch(cfg: Config, folder: Path) -> int:
    """Questions at once, by the memory that is free now; on a GPU a power of two, as its cache has
    rows."""
    import torch

    gpu = (
        cfg.answering.engine.kind == "torch"
        and devices.find(cfg.answering.engine.device).type == "cuda"
    )
    free = torch.cuda.mem_get_info()[0] if gpu else devices.available_mb() * MB
    most = min(BATCH, fitting(find(str(folder)), cfg.answering, int(CACHE_SHARE * free)))
    return 1 << (most.bit_length() - 1) if gpu else most


def _questions(cfg: Config, item: EvalSet, own: bool, per_hop: int | None) -> list[Question]:
    """A set's questions: of `--data` all, of a configured set those that training's last evaluation
    asks."""
    questions = read_questions(files.resolve(item.file, "eval"))
    if not own:
        questions = [q for q in questions if not q.hops or q.hops in cfg.eval.hops]
        per_hop = per_hop or cfg.eval.final_questions_per_hop
    return questions if per_hop is None else evaluation.select(questions, per_hop)


def _judged(judge: AnswerJudge, rows: list[ScoredRow], scores: bool) -> list[ScoredRow]:
    """The rows with the judge's word, and its score where it gives `scores`; where it gave none,
    why."""
    items = [
        Item(row.question, row.golden_answers, row.prediction, row.rubric)
        for row in rows
        if row.scored
    ]
    decisions = iter(judge.decide(items))
    for at, row in enumerate(rows):
        if row.scored:
            said = next(decisions)
            word = (
                None
                if said.right is None
                else float(said.right)
                if said.score is None
                else said.score
            )
            rows[at] = replace(
                row, judge=said.right, judge_failure=said.void_cause, score=word if scores else None
            )
    return rows


def _sets(paths: Sequence[str], corpus: str | None, default: str) -> list[EvalSet]:
    """One set a file, named by its stem. Without --corpus a generated world's questions are
    searched in that world."""
    asked = ((path.startswith(files.PREFIX), path) for path in paths)
    sets = [
        EvalSet(p if world else predictions.stem(p), p, corpus or (p if world else default))
        for world, p in asked
    ]
    if len({item.name for item in sets}) < len(sets):
        raise InputError(
            "the files of --data have different names", ", ".join(paths), "rename one of them"
        )
    return sets


def _arguments(argv: Sequence[str] | None) -> Parsed:
    """`--data` and `--predictions` take every word that follows: settings typed after their files
    are sorted out here."""
    parsed = parse(argv, "eval", "Score a policy, or predictions, on evaluation sets.", _flags)
    flags, settings = parsed.flags, []
    for name in ("data", "predictions"):
        words = getattr(flags, name)
        settings += [word for word in words if "=" in word]
        setattr(flags, name, [word for word in words if "=" not in word])
    if flags.method != AGENT:
        _baselines(flags.method).get(flags.method)
    played = not flags.predictions
    if played and max(flags.k, default=0) > flags.samples:
        raise InputError(
            "--k goes up to --samples",
            f"--k {max(flags.k)}, --samples {flags.samples}",
            "sample more",
        )
    if played and flags.samples > 1 and flags.temperature == 0:
        raise InputError(
            "greedy samples are all the same", f"--samples {flags.samples}", "give --temperature 1"
        )
    if flags.corpus and not flags.data:
        raise InputError(
            "--corpus is of --data",
            f"--corpus {flags.corpus} alone",
            "give --data, or set data.eval",
        )
    wanted = [path.absolute() for path in (flags.out, flags.summary) if path]
    for path in wanted:
        if path.exists() or wanted.count(path) > 1 or not os.access(path.parent, os.W_OK):
            rule = "--out and --summary are new files, each in a folder that can be written"
            raise InputError(
                rule, path, "give another name, remove what is there, or make the folder"
            )
    return replace(parsed, overrides=[*parsed.overrides, *settings])


def _flags(parser: Parser) -> None:
    policy.add_flags(parser)
    parser.add_argument(
        "--data", nargs="+", default=[], metavar="FILE", help="question files, or world:heldout"
    )
    parser.add_argument(
        "--corpus",
        help="corpus of --data; default: its own world, else data.corpus; none: no search",
    )
    parser.add_argument(
        "--per-hop", type=whole(1), help="questions a hop; default: the config's, or all of --data"
    )
    parser.add_argument(
        "--method", default=AGENT, help="agent, or a baseline: direct, cot, rag, ircot, iter-retgen"
    )
    parser.add_argument(
        "--temperature", type=temperature, default=0.0, help="0 is greedy (default)"
    )
    parser.add_argument(
        "--samples", type=whole(1), default=1, help="samples a question, for pass@k"
    )
    parser.add_argument(
        "--k",
        type=wholes(),
        default=[],
        metavar="1,2,4",
        help="the k of pass@k; default: 1 and all",
    )
    parser.add_argument(
        "--batch", type=whole(1), default=0, help="questions at once; default: by free memory"
    )
    records = parser.add_mutually_exclusive_group()
    records.add_argument(
        "--record", type=Path, metavar="FILE", help="keep every search's answer, ask nothing twice"
    )
    records.add_argument(
        "--replay", type=Path, metavar="FILE", help="take every search's answer from here"
    )
    parser.add_argument(
        "--cache-ttl", type=number(0), default=0.0, metavar="SECONDS", help="until one is too old"
    )
    parser.add_argument(
        "--predictions",
        nargs="+",
        default=[],
        metavar="FILE",
        help="score these; nothing is played",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write one JSON line a question and sample here"
    )
    parser.add_argument(
        "--summary",
        type=Path,
        metavar="FILE",
        help="write the table as JSON here, with its intervals",
    )


if __name__ == "__main__":
    raise SystemExit(run(main))
