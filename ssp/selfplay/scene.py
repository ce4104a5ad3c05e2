"""The data of a run: rows, evaluation sets, oracle, models. Bad input is refused here, before a run
folder exists."""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ssp.base import models
from ssp.base.errors import hold
from ssp.base.files import digest
from ssp.base.gamespec import DOCUMENTS, NOTHING, QUESTIONS, TARGETS
from ssp.base.text import normalise
from ssp.config import own
from ssp.config.schema import Config
from ssp.data.readers import read_questions, read_targets
from ssp.data.told import told
from ssp.game import corpora, protocols
from ssp.game.settings import natural
from ssp.game.world import files
from ssp.game.world.files import Oracle
from ssp.search.router import NO_CORPUS
from ssp.selfplay import documents
from ssp.selfplay.evaluator import QuestionSet
from ssp.selfplay.questions.files import given
from ssp.selfplay.questions.mixed import GivenQuestions
from ssp.selfplay.rows import TargetRow
from ssp.selfplay.targets import Targets
from ssp.selfplay.workers import build, lessons, verifier


@dataclass(frozen=True)
class Scene:
    """The checked data of a run.

    `cfg` names every data file by its absolute path, as workers may have another working folder.
    `oracle`: the world that questions are about, in that world's words. `beside`: see `Targets`.
    `given`: questions that stand among those which the roles ask. `skipped`: given questions that
    are left out, since their prompt is too long."""

    cfg: Config
    items: list[TargetRow]
    sets: list[QuestionSet]
    oracle: Oracle | None
    models: dict[str, Path]
    beside: dict[str, str]
    given: list[TargetRow]
    skipped: int = 0

    def targets(self) -> Targets:
        """The rows in the run's order, in batches of who asks, or of who answers where questions
        are given."""
        cfg = self.cfg
        block = cfg.block(cfg.spec.asker or cfg.spec.answerer)
        mark = _sha256((self.items, protocols.get(cfg.protocol)))
        size = cfg.block(cfg.spec.answerer).batch
        given = GivenQuestions(self.given, cfg.game.given, size, cfg.seed)
        rows = self.items, block.batch, cfg.seed, mark, cfg.game.proposals, self.beside
        return Targets(*rows, given, cfg.game.most_right)

    def warnings(self) -> list[str]:
        """A line for each server of tools whose episodes cannot be told apart, for each evaluation
        set that asks trained questions, whatever its file is called, and for questions that are
        left out."""
        rows = [*self.items, *self.given]
        trained = {normalise(item.question) for item in rows if item.question}
        lines: list[str] = []
        for role in self.cfg.roles:
            lines += build.role_tools(self.cfg, role).warnings
        if self.skipped:
            role = self.cfg.spec.answerer
            most = f"{role}.limits.prompt_tokens={self.cfg.block(role).limits.prompt_tokens}"
            lines.append(f"{self.skipped:,} given questions have a prompt above {most}: left out")
        for one in self.sets:
            shared = sum(normalise(asked.question) in trained for asked in one.questions)
            if shared:
                share = f"{shared:,} of the {len(one.questions):,} questions"
                lines.append(
                    f"{share} of evaluation set {one.name} are trained too: its accuracy is none of"
                    " held-out questions"
                )
        return lines


def read_scene(cfg: Config) -> Scene:
    """Read and check all data of `cfg`; makes worlds and tiny policies. InputError."""
    rule = "a training run loads weights into its engines, and an endpoint's are its own"
    step = "use engine.kind=torch; ssp eval takes an endpoint"
    for role in cfg.roles:
        engine = cfg.block(role).engine
        hold(engine.traits.loads, rule, f"{role}.engine.kind={engine.kind}", step)
    # An oracle is known by the world's name, which `concrete` replaces by a path.
    oracle = files.oracle(cfg.data.corpus, natural(cfg.protocol))
    cfg = concrete(cfg)
    items = read_items(cfg)
    hops = {item.hints.get("searches", "none") for item in items}
    rule = (
        f"game.most_right={cfg.game.most_right:g} is for rows that ask for several numbers of hops"
    )
    step = "add search_turns to the targets, or leave game.most_right out"
    hold(cfg.game.most_right == 1 or len(hops) > 1, rule, ", ".join(hops), step)
    corpora.check(cfg)
    sets = []
    for item in cfg.data.eval:
        questions = read_questions(item.file, by=cfg.eval.by)
        if cfg.answering.agent:
            questions = told(item.file, questions)
        sets.append(QuestionSet(item.name, questions, item.corpus))
    if cfg.eval.by and sets:
        rule = "the questions of the first evaluation set have the column that eval.by names"
        named = any(question.category for question in sets[0].questions)
        hold(named, rule, cfg.eval.by, "name one that they have, or leave it empty")
    verifier.check(cfg)
    models = {role: build.model_dir(cfg, role).absolute() for role in cfg.roles}
    added = _given_rows(cfg) if cfg.game.given > 0 else []
    count = len(items) + len(added)
    items, added = _fitting(cfg, items, models), _fitting(cfg, added, models)
    skipped = count - len(items) - len(added)
    shown = [item.question or item.target or item.hints.get("document", "") for item in items]
    shown += [row.question for row in added]
    for role, folder in models.items():
        build.settings(cfg, role, 0.0)  # its agent is there
        build.check_policy(cfg, role, folder)
        build.check_words(build.tokenizer(folder), shown)
    return Scene(cfg, items, sets, oracle, models, _beside(cfg, models), added, skipped)


def _fitting(cfg: Config, rows: list[TargetRow], folders: Mapping[str, Path]) -> list[TargetRow]:
    """The rows whose prompt has room, where `limits.overflow=skip` of who answers asks for it. InputError
    where none has."""
    role = cfg.spec.answerer
    limits = cfg.block(role).limits
    if limits.overflow != "skip" or not any(row.question for row in rows):
        return rows
    spoken = build.renderer(cfg, role, folders[role])
    prompt = cfg.spec.plays[cfg.spec.answers].prompt
    texts = [spoken.prompt(prompt, {"question": row.question}) for row in rows]
    sizes = map(len, spoken.encode(texts))
    fit = [row for row, size in zip(rows, sizes, strict=True) if size <= limits.prompt_tokens]
    rule = f"a given question has a prompt of at most {role}.limits.prompt_tokens"
    value = f"none of {len(rows):,} at {limits.prompt_tokens}"
    hold(fit, rule, value, f"raise {role}.limits.prompt_tokens, or set {role}.limits.overflow=stop")
    return fit


def _sha256(facts: object) -> str:
    """A digest of plain facts by their `repr`."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _beside(cfg: Config, folders: Mapping[str, Path]) -> dict[str, str]:
    """The digest of each corpus, start model, file and trace that a run uses beside its rows, by
    key."""
    places = corpora.named(cfg)
    of_corpus = {path: corpora.content(path) for path in set(places.values())}
    digests = {"data.corpus": of_corpus[places[corpora.TRAIN]]} if corpora.TRAIN in places else {}
    for item in cfg.data.eval:
        digests[f"data.eval.{item.name}.file"] = digest(Path(item.file))
        if item.corpus in places:
            digests[f"data.eval.{item.name}.corpus"] = of_corpus[places[item.corpus]]
    if cfg.judge.scores and cfg.judge.format != "score":
        digests["judge.format"] = digest(Path(cfg.judge.format))
    if cfg.game.given > 0:
        digests["data.questions"] = digest(Path(cfg.data.questions))
    if cfg.referee.model:
        digests["referee.model"] = _sha256(models.digests(verifier.folder(cfg, Path())))
    of_model = {folder: _sha256(models.digests(folder)) for folder in set(folders.values())}
    for role, folder in folders.items():
        digests[f"{role}.model"] = of_model[folder]
        if lessons.rehearses(cfg, role):
            logs = [trace.log for trace in lessons.read(cfg, role, folder)]
            digests[f"{role}.rehearsal.data"] = _sha256([(log.ids, log.kinds) for log in logs])
    return digests


def read_items(cfg: Config) -> list[TargetRow]:
    """The rows to play, from the paths that `concrete` set. InputError for a bad file, or a bank
    without a question."""
    items = []
    if cfg.spec.rows == QUESTIONS:
        return _given_rows(cfg)
    if cfg.spec.rows == DOCUMENTS:
        return documents.read(cfg)
    if cfg.spec.rows == NOTHING:
        return [TargetRow("")]
    for row in read_targets(cfg.data.targets):
        shown = {"searches": str(row.searches or ""), "examples": row.examples}
        hints = {field: text for field, text in shown.items() if text}
        items.append(TargetRow(row.answer, hints=hints))
    if cfg.referee.evidence == "counted":
        says = any("searches" in item.hints for item in items)
        rule = "counted evidence needs rows that ask for searches"
        hold(says, rule, "none", "add search_turns, or use referee.evidence=quoted")
    return items


def _given_rows(cfg: Config) -> list[TargetRow]:
    """The questions that a run is given."""
    rows = []
    for asked in given(cfg):
        golds = tuple(asked.answers)
        row = TargetRow(golds[0], asked.question, golds, rubric=asked.rubric, row=asked.row)
        rows.append(row)
    return rows


def concrete(cfg: Config) -> Config:
    """A copy of `cfg` whose paths of data, protocol and own code are absolute; generated worlds are
    written as files."""
    cfg = copy.deepcopy(cfg)
    own.locate(cfg)
    if cfg.protocol.endswith((".yaml", ".yml")):
        cfg.protocol = str(Path(cfg.protocol).expanduser().absolute())
    cfg.data.corpus = _file(cfg, "corpus", cfg.data.corpus)
    if cfg.referee.model:
        cfg.referee.model = str(models.folder(cfg.referee.model, "referee.model").absolute())
    if cfg.spec.rows == TARGETS:
        cfg.data.targets = _file(cfg, "targets", cfg.data.targets)
    elif cfg.spec.rows == QUESTIONS:
        cfg.data.questions = _file(cfg, "questions", cfg.data.questions)
    elif cfg.spec.rows == DOCUMENTS:
        cfg.data.targets = str(documents.place(cfg).absolute())
    for role in cfg.roles:
        if lessons.rehearses(cfg, role):
            cfg.block(role).rehearsal.data = str(lessons.place(cfg, role))
    if cfg.game.given > 0:
        cfg.data.questions = _file(cfg, "questions", cfg.data.questions)
    for item in cfg.data.eval:
        item.file = _file(cfg, "eval", item.file)
        item.corpus = item.corpus if item.corpus == NO_CORPUS else _file(cfg, "corpus", item.corpus)
    return cfg


def _file(cfg: Config, kind: str, path: str) -> str:
    return str(models.resolve(files.resolve(path, kind), f"data.{kind}"))
