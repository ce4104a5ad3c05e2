"""A run's folder as its readers see it: configuration, ledger, transcripts, figures. None of the
run's own code is run unless it is trusted, and a transcript is the one that the ledger names."""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import cast

from ssp.base.episode import Episode
from ssp.base.errors import InvariantError, hold, holding
from ssp.config import own
from ssp.config.load import load
from ssp.config.schema import Config
from ssp.record.ledger import Ledger
from ssp.record.ledger.rows import EpisodeRow, GameRow, OfGames, Row
from ssp.record.manifest import read_record
from ssp.record.runfolder import RunFolder


class RunReader:
    """One run. `trusted`: places of code in its configuration stay open."""

    def __init__(self, run: RunFolder, trusted: bool = False) -> None:
        self.run, self._trusted = run, trusted

    @cached_property
    def cfg(self) -> Config:
        """What it was started with. InputError for a folder that is no run."""
        rule = "a run's folder holds its config.yaml"
        hold(self.run.config.is_file(), rule, self.run.path, "give a folder below runs/")
        cfg = load(str(self.run.config), trusted=self._trusted)
        if self._trusted:
            check_code(self.run, cfg)
        return cfg

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, for looking only. InputError for a file that is missing or none."""
        file = self.run.ledger
        rule = "a ledger has games and episodes"
        with (
            holding(sqlite3.DatabaseError, rule, file, "give another run"),
            closing(Ledger(file, readonly=True)) as ledger,
        ):
            yield ledger

    def settled(self) -> OfGames:
        """The games that have a verdict, by id, and their episodes, by game and id."""
        with self.ledger() as ledger:
            return ledger.settled()

    def recorded(self, id: str) -> tuple[EpisodeRow | None, GameRow | None]:
        """The ledger's rows of an episode and of its game (an evaluation's belongs to none); None
        for what it lacks."""
        entry = game = None
        if self.run.ledger.is_file():
            with self.ledger() as ledger, suppress(InvariantError):
                entry = cast(EpisodeRow, ledger.get([id])[0])
                game = cast(GameRow, ledger.get([entry["game_id"]], "games")[0])
        return entry, game

    def columns(self, file: str, names: Sequence[str]) -> list[Row]:
        """See `episodes.columns`."""
        from ssp.record import episodes  # pyarrow, which a command's --help does without

        return episodes.columns(self.run.episodes / file, names)

    def texts(self, entries: Iterable[EpisodeRow], names: Sequence[str]) -> dict[str, Row]:
        """Episode with a transcript → these columns (`id` is one). InputError for a file that is
        not the ledger's."""
        texts = {}
        files: dict[str, list[Row]] = {}
        for entry in entries:
            file, row = entry["file"], entry["row"] or 0
            if file is None:
                continue
            if file not in files:
                files[file] = self.columns(file, names)
            rows = files[file]
            text = rows[row] if row < len(rows) else {}
            self._check(entry, text.get("id"))
            texts[entry["id"]] = text
        return texts

    def block(self, file: str) -> list[Episode]:
        """The episodes of a file, which nobody may change. InputError for one that is missing or
        foreign."""
        path = self.run.episodes / file
        return _read(path, path.stat().st_mtime_ns if path.is_file() else 0)

    def episode(self, entry: EpisodeRow) -> Episode:
        """The episode of a row that has a transcript. InputError for a file that is missing or is
        not the ledger's."""
        block = self.block(entry["file"] or "")
        row = entry["row"] or 0
        self._check(entry, block[row].id if row < len(block) else None)
        return block[row]

    def _check(self, entry: EpisodeRow, id: str | None) -> None:
        """InputError where another episode's id stands at the place of this entry."""
        rule = "a run's episodes are those of its ledger"
        where = f"{entry['file']}, row {entry['row']}, which is not {entry['id']}"
        hold(id == entry["id"], rule, where, "restore that file")

    def metrics(self) -> list[Row]:
        """The lines of metrics.jsonl as `read_metrics` has them; none where there is no such
        file."""
        return read_metrics(self.run.metrics) if self.run.metrics.is_file() else []


def check_code(run: RunFolder, cfg: Config, typed: Sequence[str] = ()) -> None:
    """InputError where code that the run's own configuration names is not what its newest
    checkpoint was trained with; `typed`: settings that somebody typed. A run without a checkpoint
    has nothing to compare."""
    state = run.read_state() or {"folders": {}}
    recorded: dict[str, str] = {}
    for folder in dict.fromkeys(state["folders"].values()):
        recorded |= read_record(run.path / folder).get("own", {})
    own.check_same(own.prints(cfg), recorded, typed)


@lru_cache(maxsize=4)
def _read(path: Path, written: int) -> list[Episode]:
    from ssp.record import episodes

    return episodes.read(path)


BACK = "back"
"""Key of the first line after a run went back, with the step that it went back to: no line before
counts that is of a later step."""


def read_metrics(path: str | Path) -> list[Row]:
    """The lines of a metrics.jsonl, the last one of each (step, role), sorted by step (roles in
    order of appearance). Lines that a run left behind when it went back (`BACK`) are left out, and
    so is an unfinished last line. InputError for a broken line elsewhere, or a missing file."""
    path = Path(path)
    rule = "a metrics file must exist"
    hold(path.is_file(), rule, path, "give the metrics.jsonl of a run folder")
    latest: dict[tuple[int, str], Row] = {}
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for text in file:
            if not text.endswith("\n"):
                break
            line = line_of(path, text[:-1])
            back = line.pop(BACK, None)
            if back is not None:
                latest = {key: kept for key, kept in latest.items() if key[0] <= back}
            latest[line["step"], line["role"]] = line
    return sorted(latest.values(), key=lambda line: int(line["step"]))


def line_of(path: Path, text: str) -> Row:
    """One line of the metrics file `path`, with a step and a role. InputError for a broken one."""
    rule = (
        "every finished line of a metrics file must be an object with step and role, whose figures"
        " are numbers"
    )
    broken = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
    with holding(broken, rule, lambda _: f"{path}: {text[:80]}", "remove that line"):
        line: Row = json.loads(text)
        for name, value in line.items():
            if isinstance(value, str) and name != "role":
                raise ValueError(f"{name} is text")
        line["step"] = int(line["step"])
        line["role"] = str(line["role"])
        if BACK in line:
            line[BACK] = int(line[BACK])
        return line


class Tail:
    """Reads what is appended to `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._at = 0

    def lines(self) -> list[str]:
        """The lines since the last call; none when there is no file yet."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            # A run that goes on takes the closing bracket of its timeline away.
            self._at = min(self._at, status.st_size) if status.st_ino == self._file else 0
            file.seek(self._at)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._file = status.st_ino
        self._at = self._at + len(data)
        return data.decode("utf-8", "replace").split("\n")[:-1]
