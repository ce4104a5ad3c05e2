"""A small real run for the board's tests: the whole game in one process with scripted policies, figures and timeline on
disk; and folders that are filled by hand. `python -m tests.board.boarded` writes golden.json anew."""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launch.cli import bind
from ssp.config.load import to_yaml
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.telemetry.runlog import RunLog
from ssp.telemetry.timeline import Timeline
from ssp.views.board.data import Board
from ssp.views.board.server import server
from tests.selfplay import fakes

GOLDEN = Path(__file__).parent / "golden.json"
HOSTILE = "who is <script>document.title='taken'</script><!-- <img src=x onerror=alert(1)> & \u2028 </script> ?"
_TIMED = re.compile(r"^(time/|seconds$|mfu$|generate/|tokens_per_second$)")


class Recorder(fakes.Sink):
    """Writes what a run says where a real one does. `seen`: called after each row."""

    def __init__(self, folder: RunFolder, seen: Any = None) -> None:
        super().__init__()
        self._log, self._timeline, self._seen = RunLog(folder.path), Timeline(folder.timeline), seen

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        super().write(step, role, values)
        self._log.write(step, role, values)
        if self._seen is not None:
            self._seen()

    def span(self, track: str, name: str, start: float, end: float) -> None:
        self._timeline.span(track, name, start, end)

    def close(self) -> None:
        self._log.close()
        self._timeline.close()


def played(folder: Path, seen: Any = None, searcher: Any = None, **changes: Any) -> fakes.Stage:
    """A finished run of scripted policies in `folder`. `seen(board)` after each row that it writes, as a page would ask while it plays."""
    settings = {"steps": 4, "proposer__batch": 6, "game__batch": "replay", "eval__every": 2, **changes}
    with pytest.MonkeyPatch.context() as patch:
        fakes.scripted(patch)
        stage = fakes.Stage(fakes.config(**settings), folder, searcher)
        stage.folder.config.write_text(to_yaml(stage.cfg))
        board = Board(stage.folder) if seen is not None else None
        stage.sink = Recorder(stage.folder, None if seen is None else lambda: seen(board))
        stage.play()
        stage.sink.close()
    return stage


ASYNC: dict[str, Any] = {
    "schedule__max_staleness__proposer": 2,
    "schedule__max_staleness__solver": 1,
    "proposer__loss": "ppo_clip",
    "solver__loss": "ppo_clip",
}


def rows(board: Board, since: int = 0, most: int | None = None) -> dict[tuple[str, str], Any]:
    """What a page knows after it has asked: (kind, key) → value."""
    return {(kind, key): value for kind, key, value in board.since(since, most)["rows"]}


def looked(run: RunFolder) -> Board:
    board = Board(run)
    board.look()
    return board


def scrubbed(board: Board) -> list[list[Any]]:
    """The document without what differs between equal runs: times."""
    known = rows(board)
    for (kind, key), value in known.items():
        if kind == "figures":
            names = known["names", key.split(":")[0]]
            value[1] = 0.0
            value[2:] = [0.0 if _TIMED.match(names[at]) else figure for at, figure in enumerate(value[2:])]
    known["run", ""]["called"] = "run"  # else the path of a temporary folder
    spans = {(track, name) for track, name, *_ in known["timeline", ""]["spans"] if not name.startswith("wait")}
    known["timeline", ""] = sorted(spans)
    return json.loads(json.dumps([[*name, value] for name, value in sorted(known.items())]))


def by_hand(
    folder: Path, questions: list[str], target: str = "t", rates: Any = lambda at: at % 5 / 4, each: int = 10**9
) -> RunFolder:
    """A run's folder whose ledger holds a valid and played game of four void-free attempts for each question, `each` of
    them a round, with no transcripts: as many as one likes, fast. Every seventh is rejected."""
    run = RunFolder(folder)
    run.episodes.mkdir(parents=True)
    run.config.write_text(to_yaml(fakes.config()))
    ledger = Ledger(run.ledger)
    games: list[dict[str, Any]] = []
    episodes: list[dict[str, Any]] = []
    for at, question in enumerate(questions):
        valid, version = at % 7 != 6, 1 + at // 100
        game = {"id": f"g{at:07d}-i1", "target": target, "question": question, "proposer_version": version}
        told = {"verdict": "valid", "win_rate": rates(at)} if valid else {"verdict": "rejected", "rule": "leakage"}
        games.append({**game, **told, "attempts": 4, "round": 1 + at // each, "kind": "proposed", "incarnation": 1})
        versions = {f"{who}_version_{end}": version for who in ("policy", "opponent") for end in ("min", "max")}
        for attempt in range(4 if valid else 0):
            row = {"id": f"s{at:07d}-i1a{attempt}-i1.0", "game_id": game["id"], "role": "solver", "state": "created"}
            episodes.append({**row, "kind": "attempt", **versions})
    ledger.create_games(games)
    ledger.create(episodes)
    ledger.advance([{"id": e["id"], "state": "kept", "outcome": "scored", "reward": 1.0} for e in episodes])
    ledger.fold()
    ledger.close()
    return run


@contextmanager
def serving(board: Board) -> Iterator[str]:
    with bind("127.0.0.1", 0) as listener:
        made = server(board)
        thread = threading.Thread(target=made.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            made.should_exit = True
            thread.join(20)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = played(Path(folder) / "run").folder
        lines = ",\n".join(json.dumps(row) for row in scrubbed(looked(run)))
    GOLDEN.write_text(f"[\n{lines}\n]\n")
    print(f"{GOLDEN}: {time.strftime('%H:%M')}")


if __name__ == "__main__":
    main()
