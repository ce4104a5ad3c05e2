"""The curriculum of a run while it plays, and again from its files: one way through the same figures.

Owns where records and setting come from. Promises that `again` gives what was logged, that a run which goes on has the
memory of its rounds up to the checkpoint, and that neither stops a run: what is missing is told, and the figures begin
anew. Only `curriculum.alarm=stop` ends one, at the end of a round. Refuses to make figures itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError, SspError
from ssp.base.models import resolve
from ssp.config.schema import Config
from ssp.data.readers import read_questions, read_targets
from ssp.game.referee.settings import natural
from ssp.game.world import World, files
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.search.index import store
from ssp.selfplay.curriculum.figures import Curriculum, Setting
from ssp.selfplay.curriculum.records import live, read
from ssp.selfplay.questions.reader import origin
from ssp.selfplay.records import Game


class Narrow(SspError):
    """Diversity collapsed, and `curriculum.alarm` is stop."""


class Watch:
    """What the coordinator tells of each settled round, in order. `say`: a line for the user."""

    def __init__(self, cfg: Config, run: RunFolder, say: Callable[[str], None]) -> None:
        self._cfg, self._run, self._say = cfg, run, say
        self._curriculum: Curriculum | None = None
        self.fatal: Narrow | None = None
        """Why the run is to end."""

    def restart(self, step: int) -> None:
        """The run (re)starts after `step`: earlier rounds are read from its files."""
        self._curriculum, self.fatal = None, None
        if step < 1:
            return
        try:
            self._curriculum = _begun(self._cfg)
            for number, asked in read(self._run, step):
                self._curriculum.round(number, asked)
        except Exception as error:  # figures are no reason for a run not to go on, whatever is wrong with its files
            self._curriculum = None
            self._say(f"curriculum figures begin anew after step {step}: {str(error) or type(error).__name__}")

    def round(self, step: int, games: Sequence[Game]) -> dict[str, float]:
        """The figures of a settled round; its alarm is said."""
        if self._curriculum is None:
            self._curriculum = _begun(self._cfg)
        values = self._curriculum.round(step, live(games))
        if self._cfg.curriculum.alarm == "off":
            return values
        if said := self._curriculum.said:
            self._say(said)
            if self._cfg.curriculum.alarm == "stop":
                self.fatal = Narrow(f"{said} (curriculum.alarm=stop)")
        return values


def again(run: RunFolder) -> Iterator[tuple[int, dict[str, float], str]]:
    """(step, figures, the line of an alarm that begins) of each settled round of a run's files. InputError as
    `records.read`, and for a folder that is no run."""
    curriculum = _begun(RunReader(run).cfg)
    for step, asked in read(run):
        values = curriculum.round(step, asked)
        yield step, values, curriculum.said


def _begun(cfg: Config) -> Curriculum:
    return Curriculum(setting(cfg), cfg.curriculum.window, PROPOSER in cfg.roles)


def setting(cfg: Config) -> Setting:
    """What a run's data offer. Numbers that no file tells any more, or not without reading a corpus, are None."""
    world = _world(cfg.data.corpus)
    documents = _rows(cfg) if world is None else len(world.documents())
    if world is None or natural(cfg.protocol) or PROPOSER not in cfg.roles:
        return Setting(_targets(cfg), documents)
    return Setting(_targets(cfg), documents, world.hops)


def _world(path: str) -> World | None:
    """The generated world that a data path names, or is a file of."""
    return files.oracle(origin(path))


def _targets(cfg: Config) -> int | None:
    """Distinct targets, or first answers of given questions."""
    try:
        if PROPOSER in cfg.roles:
            named = _world(cfg.data.targets)
            found = named.targets() if named else [row.answer for row in read_targets(_file(cfg.data.targets))]
        elif cfg.game.questions == "dataset":
            found = [asked.answers[0] for asked in read_questions(_file(cfg.data.questions))]
        else:
            return None  # a bank's are read while another run may write them
    except InputError:
        return None
    return len(set(found))


def _rows(cfg: Config) -> int | None:
    """Documents of an index folder, by its manifest; of a file they would have to be counted."""
    try:
        return store.read_manifest(_file(cfg.data.corpus)).rows
    except InputError:
        return None


def _file(path: str) -> str:
    return str(resolve(path, "data"))
