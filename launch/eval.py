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
from ssp.config import heldout, own
from ssp.config.load import to_yaml
from ssp.config.schema import Config, EvalSet
from ssp.data.readers import Question, read_questions
from ssp.data.told import told
from ssp.game import corpora, evaluation
from ssp.game.evaluation import Kept, ScoredRow, predictions
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
"""Questions at once, at most, and the share of the free memory that their cache may take. No result
depends on them."""


def main(argv: Sequence[str]) -> int:
    """Run the command. Returns 0, or 1 when a set has no scored question (every episode void)."""
    parsed = _arguments(argv)
    args = parsed.flags
    named = policy.parse(args)
    cfg = named.config(args.config, parsed.overrides)
    threads.use(threads.alone(cfg))
    judge = None if cfg.judge.kind == "exact" else build.judge(cfg)
    if judge is not None:
        judge.check()
    console = Terminal(soft_wrap=True)
    kept = Kept(None, "")
    if args.predictions:
        sets = _sets(args.data, None, "")
        questions = {chosen.name: _questions(cfg, chosen, True, None) for chosen in sets}
        rows = predictions.read(args.predictions, questions)
    else:
        rows, kept = _play(cfg, args, named, console)
    if judge is not None:
        rows = {name: _judged(judge, played, cfg.judge.scores) for name, played in rows.items()}
    ks = args.k or ([1, args.samples] if args.samples > 1 else [])
    lines = {name: evaluation.lines(name, played, ks) for name, played in rows.items()}
    if args.out:  # the files first: who reads the table may go away
        evaluation.write_rows(args.out, rows)
        if kept.path:
            kept.path.unlink(missing_ok=True)

    averaged = {name: of_set[-1] for name, of_set in lines.items()}
    if not (args.data or args.predictions):
        for chosen in cfg.data.eval:
            # a control: nothing can be found there, or it is no new question
            if chosen.corpus == NO_CORPUS or not heldout.apart(cfg, chosen.file):
                averaged.pop(chosen.name, None)
    if args.summary:
        evaltable.write(args.summary, lines, averaged)
    evaltable.show(console, lines, averaged, rows, cfg.retriever.topk)
    for what, file in (("rows", args.out), ("summary", args.summary)):
        if file:
            console.print(f"{what}: {file}")
    return 0 if all(any(row.scored for row in played) for played in rows.values()) else 1


def _play(
    cfg: Config, args: argparse.Namespace, named: policy.NamedPolicy, console: Terminal
) -> tuple[dict[str, list[ScoredRow]], Kept]:
    """Every set's rows, and where they are kept. All files are read, and all parts made, before the
    first question."""
    sets = _sets(args.data, args.corpus, cfg.data.corpus) if args.data else cfg.data.eval
    step = "give --data FILE, or a set in data.eval"
    hold(sets, "ssp eval needs an evaluation set", "data.eval=[]", step)
    questions = {
        chosen.name: _questions(cfg, chosen, bool(args.data), args.per_hop) for chosen in sets
    }
    folder = named.folder(cfg)
    corpus_names = [chosen.corpus for chosen in sets]
    kept = _kept(cfg, args, named, folder, questions, corpus_names)
    if kept.rows:
        say(f"{kept.path}: {len(kept.rows)} rows are there already", file=sys.stderr)
    record = args.record or args.replay
    search: Search
    if record:
        only = bool(args.replay)
        search = corpora.recorded(cfg, corpus_names, record, args.cache_ttl, only)
    else:
        search = corpora.search(cfg, corpus_names)
    said = f"method {args.method}, temperature {args.temperature:g}, seed {cfg.seed}"
    said += f", searched: {', '.join(dict.fromkeys(corpus_names))}"
    console.print(f"policy {named.shown(folder)}, {said}", soft_wrap=True)

    if args.method == AGENT:
        play = build.player(cfg, cfg.spec.answerer, folder, search, args.temperature)
    else:
        play = _baselines(args.method).player(cfg, folder, search, args.temperature, args.method)
    texts = [question.question for of_set in questions.values() for question in of_set]
    build.check_words(build.tokenizer(folder), texts)
    batch = args.batch or _batch(cfg, folder)
    rows = {}
    try:
        for chosen in sets:
            name = chosen.name
            asked = questions[chosen.name]
            stage = cfg.spec.examining
            mark = f"eval/{name}"
            tasks = evaluation.make_tasks(asked, cfg.seed, chosen.corpus, mark, args.samples, stage)
            with followed(name, len(tasks)) as moved:
                rows[name] = kept.played(name, asked, tasks, play, batch, moved)
    except KeyboardInterrupt:
        if kept.path:
            told = f"{len(kept.rows)} rows are kept in {kept.path}"
            say(f"{told}: the same command goes on from there", file=sys.stderr)
        raise
    if isinstance(search, RecordedSearch):
        searches = search.hits + search.misses
        share = search.hits / max(searches, 1)
        console.print(f"searches: {searches}, from the record {search.hits} ({share:.1%})")
        search.close()
    return rows, kept


def _kept(
    cfg: Config,
    args: argparse.Namespace,
    named: policy.NamedPolicy,
    folder: Path,
    questions: dict[str, list[Question]],
    corpus_names: Sequence[str],
) -> Kept:
    """The rows that an interrupted evaluation of the same kind left beside `--out`."""
    drawn = (args.method, args.temperature, args.samples, args.replay)
    options = (*drawn, named.url, named.model, own.prints(cfg))
    places = [folder]
    protocol = Path(cfg.protocol).expanduser()
    if protocol.is_file():
        places.append(protocol)
    places += corpora.named(cfg, [corpora.TRAIN, *corpus_names]).values()
    return Kept(args.out, evaluation.mark((to_yaml(cfg), options, questions), places))


def _baselines(method: str) -> ModuleType:
    return extra("baselines", f"--method {method}", "methods")


def _batch(cfg: Config, folder: Path) -> int:
    """How many questions are asked at once, by the memory that is free now; on a GPU a power of
    two, as its cache has rows."""
    import torch

    engine = cfg.answering.engine
    gpu = engine.traits.model == "needed" and devices.find(engine.device).type == "cuda"
    free = torch.cuda.mem_get_info()[0] if gpu else devices.available_mb() * MB
    most = min(BATCH, fitting(find(str(folder)), cfg.answering, int(CACHE_SHARE * free)))
    return 1 << (most.bit_length() - 1) if gpu else most


def _questions(cfg: Config, chosen: EvalSet, own: bool, per_hop: int | None) -> list[Question]:
    """A set's questions: all of `--data`, or those of a configured set that training's last
    evaluation asks."""
    file = files.resolve(chosen.file, "eval")
    questions = read_questions(file, by=cfg.eval.by)
    if cfg.answering.agent:
        questions = told(file, questions)
    if not own:
        questions = [q for q in questions if not q.hops or q.hops in cfg.eval.hops]
        per_hop = per_hop or cfg.eval.final_questions_per_hop
    return questions if per_hop is None else evaluation.select(questions, per_hop)


def _judged(judge: AnswerJudge, rows: list[ScoredRow], scores: bool) -> list[ScoredRow]:
    """The rows with the judge's word, and its score where it gives `scores`; where it gave none,
    why."""
    scored = [at for at, row in enumerate(rows) if row.scored]
    items = []
    for row in (rows[at] for at in scored):
        items.append(Item(row.question, row.golden_answers, row.prediction, row.rubric))
    for at, said in zip(scored, judge.decide(items), strict=True):
        score = None
        if scores and said.right is not None:
            score = float(said.right) if said.score is None else said.score
        rows[at] = replace(rows[at], judge=said.right, judge_failure=said.void_cause, score=score)
    return rows


def _sets(paths: Sequence[str], corpus: str | None, default: str) -> list[EvalSet]:
    """One set a file, named by its stem. Without --corpus a generated world's questions are
    searched in that world."""
    sets = []
    for path in paths:
        if path.startswith(files.PREFIX):
            sets.append(EvalSet(path, path, corpus or path))
        else:
            sets.append(EvalSet(predictions.stem(path), path, corpus or default))
    rule = "the files of --data have different names"
    names = {chosen.name for chosen in sets}
    hold(len(names) == len(sets), rule, ", ".join(paths), "rename one of them")
    return sets


def _arguments(argv: Sequence[str]) -> Parsed:
    """`--data` and `--predictions` take every word that follows: settings typed after their files
    are sorted out here."""
    parsed = parse(argv, "eval", "Score a policy, or predictions, on evaluation sets.", flags)
    args = parsed.flags
    settings = []
    for name in ("data", "predictions"):
        words = getattr(args, name)
        settings += [word for word in words if "=" in word]
        setattr(args, name, [word for word in words if "=" not in word])
    if args.method != AGENT:
        _baselines(args.method).get(args.method)
    most = max(args.k, default=0)
    if not args.predictions:
        asked = f"--k {most}, --samples {args.samples}"
        hold(most <= args.samples, "--k goes up to --samples", asked, "sample more")
        same = args.samples > 1 and args.temperature == 0
        rule = "greedy samples are all the same"
        hold(not same, rule, f"--samples {args.samples}", "give --temperature 1")
    if args.corpus and not args.data:
        alone = f"--corpus {args.corpus} alone"
        raise InputError("--corpus is of --data", alone, "give --data, or set data.eval")
    wanted = [path.absolute() for path in (args.out, args.summary) if path]
    rule = "--out and --summary are new files, each in a folder that can be written"
    step = "give another name, remove what is there, or make the folder"
    for path in wanted:
        fits = os.access(path.parent, os.W_OK) and wanted.count(path) == 1
        hold(fits and not path.exists(), rule, path, step)
    return replace(parsed, overrides=[*parsed.overrides, *settings])


def flags(parser: Parser) -> None:
    """The options of `ssp eval`."""
    policy.add_flags(parser)
    add = parser.add_argument
    add("--data", nargs="+", default=[], metavar="FILE", help="question files, or world:heldout")
    add(
        "--corpus",
        help="corpus of --data; default: its own world, else data.corpus; none: no search",
    )
    add("--per-hop", type=whole(1), help="questions a hop; default: the config's, or all of --data")
    add(
        "--method", default=AGENT, help="agent, or a baseline: direct, cot, rag, ircot, iter-retgen"
    )
    add("--temperature", type=temperature, default=0.0, help="0 is greedy (default)")
    add("--samples", type=whole(1), default=1, help="samples a question, for pass@k")
    add(
        "--k",
        type=wholes(),
        default=[],
        metavar="1,2,4",
        help="the k of pass@k; default: 1 and all",
    )
    add("--batch", type=whole(1), default=0, help="questions at once; default: by free memory")
    records = parser.add_mutually_exclusive_group()
    records.add_argument(
        "--record", type=Path, metavar="FILE", help="keep every search's answer, ask nothing twice"
    )
    records.add_argument(
        "--replay", type=Path, metavar="FILE", help="take every search's answer from here"
    )
    add("--cache-ttl", type=number(0), default=0.0, metavar="SECONDS", help="until one is too old")
    add(
        "--predictions",
        nargs="+",
        default=[],
        metavar="FILE",
        help="score these; nothing is played",
    )
    add("--out", type=Path, metavar="FILE", help="write one JSON line a question and sample here")
    add(
        "--summary",
        type=Path,
        metavar="FILE",
        help="write the table as JSON here, with its intervals",
    )


if __name__ == "__main__":
    raise SystemExit(run(main))
