"""Questions that nobody proposes: those of a data set, or of a bank (an earlier run, or what was exported of one)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ssp.base.errors import InputError
from ssp.base.models import resolve
from ssp.config.schema import Config
from ssp.data.readers import Question, read_questions
from ssp.game.world import files
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions.files import is_bank, read_accepted
from ssp.selfplay.questions.records import identify


def given(cfg: Config) -> list[Question]:
    """The questions that `cfg` is given, in order; none where a proposer asks. InputError for a bad file."""
    if cfg.game.questions == "proposer":
        return []
    if cfg.game.questions == "dataset":
        return read_questions(resolve(files.resolve(cfg.data.questions, "questions"), "data.questions"))
    place = resolve(cfg.data.questions, "data.questions")
    found = read_accepted(place) if is_bank(place) else _accepted(place)
    if not found:
        raise InputError("a bank holds at least one accepted question", place, "name a run that a proposer played in")
    return found


def answered(cfg: Config) -> dict[tuple[str, str], Question]:
    """(question, first answer) → what the file behind `cfg` says of it; empty where none is: of what a run asked, the
    target is the one right answer."""
    if cfg.game.questions == "bank" and not is_bank(resolve(cfg.data.questions, "data.questions")):
        return {}
    return {(asked.question, asked.answers[0]): asked for asked in given(cfg)}


def _accepted(place: Path) -> list[Question]:
    """What the referee accepted in an earlier run: that run's folder, or its ledger."""
    if place.is_dir():
        RunFolder(place).check_idle()  # its questions would become more while these are played
        place = RunFolder(place).ledger
    with closing(Ledger(place, readonly=True)) as ledger:
        return [Question(identify(question, target), question, (target,)) for question, target in ledger.accepted()]
