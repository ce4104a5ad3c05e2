"""A run folder of so many episodes, and what its readers cost. See growth.py, which prints the table."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ssp.base.episode import EVAL, Episode  # noqa: E402
from ssp.base.files import whole  # noqa: E402
from ssp.base.seeds import generator  # noqa: E402
from ssp.base.tokenlog import Kind, TokenLog  # noqa: E402
from ssp.config.load import to_yaml  # noqa: E402
from ssp.data.readers import read_questions  # noqa: E402
from ssp.record import episodes as transcripts  # noqa: E402
from ssp.record.ledger import HomeLedger, Ledger  # noqa: E402
from ssp.record.ledger import home as places  # noqa: E402
from ssp.record.reader import RunReader  # noqa: E402
from ssp.record.runfolder import RunFolder  # noqa: E402
from ssp.selfplay.checkpoint import SavedState, check_resumable  # noqa: E402
from ssp.selfplay.scene import concrete  # noqa: E402
from ssp.selfplay.settings import load  # noqa: E402
from ssp.selfplay.targets import TargetRow, Targets  # noqa: E402

GAMES, ATTEMPTS = 200, 4
"""Games of a round, and attempts at each: 1,000 episodes."""
EVALUATIONS, ASKED = 10, 50
"""Evaluations of a run, and questions of each."""
EDGE = 100
"""Rounds at the start and at the end that are written through the ledger's calls; those between are copies."""


def measure(episodes: int) -> dict[str, float]:
    """Write a run of so many episodes, at least 10,000, and let each reader of it open it in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="growth-", dir=os.environ.get("GROWTH_DIR")) as folder:
        run = RunFolder(Path(folder) / "run")
        figures = write(run, episodes // (GAMES * (1 + ATTEMPTS)))
        figures["ledger MB"] = run.ledger.stat().st_size / 1e6
        for name in LOOKS:
            command = [sys.executable, __file__, name, str(run.path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures |= json.loads(done.stdout.splitlines()[-1])
    return figures


def write(run: RunFolder, rounds: int) -> dict[str, float]:
    """Write a run of so many rounds: the first and the last as a run does, through the ledger's own calls, and those
    between as copies of the first. The calls' CPU milliseconds a round at the start and at the end."""
    cfg = concrete(load("simulated", [f"steps={2 * rounds}", f"run.dir={run.path}", f"game.attempts={ATTEMPTS}"]))
    run.checkpoints.mkdir(parents=True)
    run.config.write_text(to_yaml(cfg), encoding="utf-8")
    asked = read_questions(cfg.data.eval[0].file)[:ASKED]
    seconds: dict[str, list[float]] = {"a round's calls": [], "commit": [], "check": []}
    with closing(HomeLedger(run.ledger)) as ledger, run.metrics.open("w", encoding="utf-8") as metrics:
        ledger.next_version("run")
        for role in cfg.roles:
            ledger.next_version(role, 1, 0)
        copied = max(EDGE, (rounds - EDGE) // EDGE * EDGE)
        for step in range(1, rounds + 1):
            if not EDGE < step <= copied:
                _round(run, ledger, step, seconds)
            elif step % EDGE == 1:
                _copies(run, ledger, step - 1)
            if step % max(1, rounds // 4) == 0:
                began = time.process_time()
                ledger.check()
                seconds["check"].append(time.process_time() - began)
            if step in (1, rounds) or step % max(1, rounds // EVALUATIONS) == 0:
                scores = _evaluation(run, ledger, f"eval/{cfg.data.eval[0].name}", step, asked)
                metrics.write(json.dumps({"step": step, "role": EVAL, "time": float(step), **scores}) + "\n")
            for role in ("game", *cfg.roles):
                metrics.write(json.dumps({"step": step, "role": role, "time": float(step), **_figures(role)}) + "\n")
        _save(run, ledger, cfg.roles, rounds)
        ledger.fold()
    figures = {}
    for name, each in seconds.items():
        part = max(1, len(each) // 10)
        for when, values in (("start", each[:part]), ("end", each[-part:])):
            figures[f"CPU ms {name}, {when}"] = 1e3 * sum(values) / len(values)
    return figures


def _round(run: RunFolder, ledger: HomeLedger, step: int, seconds: dict[str, list[float]]) -> None:
    """One round of games, from their first row to their commits."""
    names, asking, trying = _players(step)
    blocks = _blocks(step)
    same = {"round": step, "incarnation": 1, "issue": 0, "past": False, "state": "running"}
    rows = []
    for file, block in blocks.items():
        transcripts.write(run.episodes / file, [_episode(*one) for one in block])
        for row, (id, _, _, number) in enumerate(block):
            facts = {"outcome": "scored", "reward": float(number % 2), "policy_version_min": step}
            rows.append({"id": id, "file": file, "row": row, "policy_version_max": step, "state": "queued", **facts})
    began = time.process_time()
    kinds = {"round": step, "incarnation": 1, "kind": "proposed"}
    ledger.create_games(
        [{"id": name, "target": f"target {name}", "number": i, **kinds} for i, name in enumerate(names)]
    )
    for block, role, kind in ((asking, "proposer", "proposal"), (trying, "solver", "attempt")):
        created = [{"id": id, "game_id": game, "attempt": number} for id, game, _, number in block]
        ledger.create(created, {**same, "role": role, "kind": kind})
    judged = {"verdict": "valid", "attempts": ATTEMPTS, "win_rate": 0.5, "proposer_version": step}
    ledger.settle([{"id": name, "question": f"which word of {name} is it ?", **judged} for name in names], rows)
    seconds["a round's calls"].append(time.process_time() - began)
    began = time.process_time()
    for block, role in ((asking, "proposer"), (trying, "solver")):
        version = ledger.next_version(role, 1, step)
        ledger.commit(role, 1, step, version, [id for id, *_ in block])
    seconds["commit"].append(time.process_time() - began)


def _players(step: int) -> tuple[list[str], list[Any], list[Any]]:
    """A round's games, its proposals and its attempts: id, game, role and number of each."""
    names = [f"g{step * GAMES + i:08d}-i1" for i in range(GAMES)]
    asking = [(f"p{name[1:]}", name, "proposer", 0) for name in names]
    trying = [(f"s{name[1:]}a{i}-i1", name, "solver", i) for name in names for i in range(ATTEMPTS)]
    return names, asking, trying


def _blocks(step: int) -> dict[str, list[Any]]:
    """A round's files of transcripts, and whose each holds."""
    _, asking, trying = _players(step)
    blocks = {f"proposer-{step:06d}-i1-0.0.parquet": asking}
    for i in range(ATTEMPTS):
        part = len(trying) // ATTEMPTS
        blocks[f"solver-{step:06d}-i1-{i}.0.parquet"] = trying[i * part : (i + 1) * part]
    return blocks


def _copies(run: RunFolder, ledger: HomeLedger, shift: int) -> None:
    """The first EDGE rounds once more, `shift` rounds later: the same rows and files as calls would leave."""
    game = "printf('%08d', substr({0}, 2, 8) + :games)"
    own = f"substr({{0}}, 1, 1) || {game} || substr({{0}}, 10)".format
    moved = {
        "id": own("id"),
        "game_id": own("game_id"),
        "target": f"'target ' || {own('id')}",
        "question": f"'which word of ' || {own('id')} || ' is it ?'",
        "file": "role || '-' || printf('%06d', round + :rounds) || substr(file, length(role) + 8)",
    }
    for name in ("round", "step", "version", "commit_step", "proposer_version", "policy_version_min"):
        moved[name] = f"{name} + :rounds"
    moved["policy_version_max"] = moved["policy_version_min"]
    shifts = {"rounds": shift, "games": shift * GAMES, "edge": EDGE}
    rows = f"id BETWEEN '{{0}}{GAMES:08d}' AND '{{0}}{(EDGE + 1) * GAMES - 1:08d}~'"
    steps = "step BETWEEN 1 AND :edge"
    sources = [("games", rows.format("g")), ("episodes", rows.format("p")), ("episodes", rows.format("s"))]
    sources += [("versions", steps), ("commits", steps)]
    with ledger._transaction() as db:
        for table, which in sources:
            columns = [row["name"] for row in db.execute(f"PRAGMA table_info({table})")]
            given = ", ".join(moved.get(name, name) for name in columns)
            db.execute(f"INSERT INTO {table} SELECT {given} FROM {table} WHERE {which}", shifts)
        more = {"proposer": EDGE * GAMES, "solver": EDGE * GAMES * ATTEMPTS}
        db.executemany("UPDATE counters SET created = created + ? WHERE role = ?", [(n, r) for r, n in more.items()])
    first = {file: pq.read_table(run.episodes / file) for file in _blocks(1)}
    for step in range(shift + 1, shift + EDGE + 1):
        for (file, block), table in zip(_blocks(step).items(), first.values(), strict=True):
            _copy(run.episodes / file, block, table)


def _copy(path: Path, block: list[Any], table: pa.Table) -> None:
    """A file of transcripts like this one, of other episodes."""
    for place, name in enumerate(("id", "game")):
        at = table.schema.get_field_index(name)
        values = pa.array([one[place] for one in block], pa.string())
        table = table.set_column(at, table.schema.field(at), values)
    with whole(path) as aside:
        pq.write_table(table, aside, compression="zstd", use_dictionary=False, write_statistics=False)


def _episode(id: str, game: str, role: str, number: int, final: str = "a word", text: str = "Ask. ") -> Episode:
    log = TokenLog()
    log.append(Kind.PROMPT, [1] * 20)
    log.append_model([2] * 20, [-0.5] * 20, 1)
    said = f"{text}<answer>{final}</answer>"
    return Episode(id, game, role, number, log=log, text=said, response_at=len(text), final=final, stopped="final")


def _evaluation(run: RunFolder, ledger: HomeLedger, name: str, step: int, asked: Any) -> dict[str, float]:
    """Ask the questions of a set after `step`; the scores."""
    file = f"eval-{step:06d}.parquet"
    right = generator(step, "right").random(len(asked)) < 0.5
    played = []
    for i, question in enumerate(asked):
        final = question.answers[0] if right[i] else "nothing"
        played.append(_episode(f"e{step:06d}-{i}", name, EVAL, 1, final, f"{question.question}\n"))
    transcripts.write(run.episodes / file, played)
    created = [{"id": e.id, "game_id": name, "item": q.id} for e, q in zip(played, asked, strict=True)]
    same = {"role": EVAL, "state": "running", "round": step, "kind": "evaluation", "incarnation": 1, "attempt": 1}
    ledger.create(created, {**same, "issue": 0, "past": False})
    ended = [{"id": e.id, "file": file, "row": i} for i, e in enumerate(played)]
    versions = {"policy_version_min": step, "policy_version_max": step}
    ledger.advance(ended, {"state": "kept", "outcome": "scored", **versions})
    return {"eval/accuracy": float(right.mean()), "eval/accuracy_mean123": float(right.mean())}


def _figures(role: str) -> dict[str, float]:
    """As many figures as a row of a run has."""
    more = {f"time/part_{i}": 0.125 * i for i in range(30)}
    if role == "game":
        return {"game/win_rate": 0.5, "game/valid_rate": 0.9, "game/played": 200.0, "tokens_per_second": 1.0, **more}
    return {"reward/mean": 0.5, "reward/all": 0.5, "searches": 1.0, "grad_norm": 1.0, **more}


def _save(run: RunFolder, ledger: HomeLedger, roles: tuple[str, ...], step: int) -> None:
    """A checkpoint of `step` without weights."""
    state = SavedState(step)
    for role in roles:
        version = ledger.newest(role)
        folder = run.checkpoint(role, version)
        folder.mkdir(parents=True)
        record = {"version": version, "run_step": step, "step": step, "role": role, "protocol": ""}
        (folder / "ssp.json").write_text(json.dumps(record), encoding="utf-8")
        state.folders[role] = run.relative(folder)
        state.versions[role] = version
    run.write_state(asdict(state))


def doctor(run: RunFolder) -> None:
    """`ssp doctor --ledger RUN`."""
    from launch import doctor as command

    code = command.main(["--ledger", str(run.path)])
    if code:
        raise SystemExit(f"doctor says {code}")


def resume(run: RunFolder) -> None:
    """What a resumed run does with its folder before it plays."""
    from ssp.selfplay.curriculum.figures import Watch
    from ssp.selfplay.report import Report
    from ssp.telemetry.console import Console
    from ssp.telemetry.display import Display

    cfg = RunReader(run).cfg
    targets = Targets([TargetRow("it")], GAMES, cfg.seed)
    check_resumable(run, cfg, targets)
    with closing(HomeLedger(run.ledger)) as ledger, open(os.devnull, "w") as nowhere:
        step = ledger.updates(["solver"], sys.maxsize)
        ledger.rollback(dict.fromkeys(cfg.roles, step))
        ledger.next_version("run")
        display = Display(cfg, run, Console(nowhere))
        Report(display, None, 1, cfg.spec, display.earlier).restart(step)
        said: list[str] = []
        Watch(cfg, run, said.append).restart(step)
        display.close()
        if said:
            raise SystemExit(f"resume says {said}")


def board(run: RunFolder) -> None:
    """`ssp board RUN --save FILE.html`."""
    from launch import board as command

    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        command.main([str(run.path), "--save", f"{folder}/board.html"])


def compare(run: RunFolder) -> None:
    """`ssp compare RUN`."""
    from launch import compare as command

    command.main([str(run.path)])


def copy(run: RunFolder) -> None:
    """What a checkpoint of a run does whose folder is on a network: a whole copy of its ledger."""
    with tempfile.TemporaryDirectory(prefix="growth-", dir=run.path.parent) as folder:
        file = shutil.copyfile(run.ledger, Path(folder) / "ledger.db")
        with mock.patch.object(places, "written_at", return_value=Path(file)):
            target = Path(folder) / "target.db"
            with closing(HomeLedger(target)) as ledger:
                ledger.keep()


def check(run: RunFolder) -> None:
    """Law 3 over the whole file, as after each step of a run."""
    with closing(Ledger(run.ledger)) as ledger:
        ledger.check()


LOOKS = {"copy": copy, "check": check, "doctor": doctor, "resume": resume, "board": board, "compare": compare}


def main() -> None:
    """One reader in this process: its seconds, CPU seconds and most MB."""
    name, path = sys.argv[1:]
    began, spent = time.perf_counter(), time.process_time()
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        LOOKS[name](RunFolder(path))
    figures = {f"{name} s": time.perf_counter() - began, f"{name} CPU s": time.process_time() - spent}
    figures[f"{name} MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
