"""What state.json says of a run's checkpoints, and whether that is true.

It names a consistent set of learners at one step: a folder for each role, and the same folder for
roles that share a policy."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ssp.base.episode import EVAL
from ssp.base.errors import InputError, InvariantError, hold, holding
from ssp.config.schema import Config
from ssp.record import episodes as transcripts
from ssp.record.ledger import Ledger
from ssp.record.manifest import check_files, own_digest, read_record
from ssp.record.reader import RunReader
from ssp.record.runfolder import STEP, RunFolder, step_of
from ssp.selfplay.credit import Credits
from ssp.selfplay.lineup import check_kept, meets_past
from ssp.selfplay.targets import Targets
from ssp.selfplay.workers import build

Plain = dict[str, Any]
"""Data as JSON holds it."""


@dataclass
class SavedState:
    """What state.json holds. All learners are at `step`.

    `rollbacks`: how often the run went back after a collapse. `good`: the newest state whose
    weights have shown no sign of a collapse; empty when this state is it, or when nobody watches.
    `league`: see `Lineup.state`. `credit`: see `Credits.state`."""

    step: int = 0
    folders: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    pool: list[Plain] = field(default_factory=list)
    cursor: Plain = field(default_factory=lambda: {"next": 0, "open": []})
    health: dict[str, Plain] = field(default_factory=dict)
    rollbacks: int = 0
    good: Plain = field(default_factory=dict)
    league: Plain = field(default_factory=dict)
    credit: dict[str, Plain] = field(default_factory=dict)


def read(
    folder: RunFolder, roles: Sequence[str] = (), step: int | None = None
) -> SavedState | None:
    """The state that state.json holds, or held at `step`; None where there is none.

    InputError when it is not as it was written, or when it names folders of other roles than
    `roles` (empty: any roles)."""
    stored = folder.read_state(step)
    if stored is None:
        return None
    digest = stored.pop("sha256", None)
    expected = {entry.name for entry in fields(SavedState)}
    # `credit` is younger than the other fields: an old state lacks it.
    wrong = sorted(({*stored} | {"credit"}) ^ expected)
    if not wrong:
        named = set(roles or stored["folders"])
        if not named == set(stored["folders"]) == set(stored["versions"]):
            wrong = ["folders"]
    if wrong or digest != own_digest(stored):
        rule = "state.json must be as it was written"
        what = ", ".join(wrong) or "its sha256"
        raise InputError(rule, f"{folder.state}: {what}", "restore the file, or start a new run")
    for body in (stored, stored["good"]):
        if body and "credit" not in body:
            body["credit"] = _credit_of_learners(folder, body["folders"])
    return SavedState(**stored)


def _credit_of_learners(folder: RunFolder, folders: Mapping[str, str]) -> dict[str, Plain]:
    """What the estimators of a checkpoint remember, by role, read from its learners' own records.

    They are there where state.json is too old to hold them."""
    credit = {}
    for role, path in folders.items():
        with suppress(KeyError, TypeError, ValueError):
            remembered = dict(read_record(folder.path / path)["algorithm"][role]["state"])
            if remembered:
                credit[role] = remembered
    return credit


def differences(folder: RunFolder, state: SavedState, ledger: Ledger) -> list[str]:
    """Where a state differs from its checkpoints' own records (`ssp.json`), and these from the
    ledger's updates; a sentence each."""
    differ = []
    for path in dict.fromkeys(state.folders.values()):
        roles = [role for role, its in state.folders.items() if its == path]
        record = read_record(folder.path / path)
        version = record.get("version")
        named = [state.versions[role] for role in roles]
        if version not in named:
            differ.append(f"state.json names {path} for version {named[-1]}, it is {version}")
        at = record.get("run_step")
        if not isinstance(at, int) or at > state.step:
            differ.append(f"state.json says step {state.step}, {path} is of step {at}")
        updates = record.get("step")
        committed = ledger.updates(roles, state.step)
        if isinstance(updates, int) and updates != committed:
            differ.append(
                f"{path} contains {updates} updates, the ledger's commits up to step {state.step}"
                f" are {committed}"
            )
    return differ


def check_resumable(folder: RunFolder, cfg: Config, targets: Targets) -> list[str]:
    """Check everything that a resumed run needs of its folder, before anything starts.

    Returns a line for what the folder lacks and the run can do without. InputError names what is
    wrong, and the checkpoints to go on from instead."""
    step = step_of(cfg.resume)
    try:
        ledger = Ledger(folder.ledger, readonly=True)
    except InputError as error:
        raise InputError(error.rule, error.found, "restore it, or start a new run") from error
    try:
        lost = transcripts.damaged(folder.episodes, ledger.placed(), whole=False)
        state = _sound(folder, cfg, ledger, step)
    except InputError as error:
        whole = []
        for other in folder.steps():
            with suppress(InputError):
                if other != step and _sound(folder, cfg, ledger, other):
                    whole.append(str(other))
        if not whole:
            raise
        kept = f"go on from a step that is kept and whole ({', '.join(whole)})"
        next_step = f"{kept}: resume={STEP}{whole[-1]} run.dir={folder.path}"
        raise InputError(error.rule, error.found, next_step) from error
    finally:
        ledger.close()
    if state is not None:
        for path in state.folders.values():
            build.check_protocol(folder.path / path, cfg.protocol)
        targets.restore(state.cursor)
    if not lost:
        return []
    file, what = next(iter(lost.items()))
    known = (
        f"{len(lost)} files of transcripts are gone or damaged, such as {folder.episodes / file}"
        f" ({what})"
    )
    return [f"{known}; ssp doctor --ledger {folder.ledger} lists them"]


def _sound(folder: RunFolder, cfg: Config, ledger: Ledger, step: int | None) -> SavedState | None:
    """The state of a run's newest checkpoint, or of the one at `step`.

    InputError unless all of it is as it was written."""
    state = read(folder, cfg.roles, step)
    if state is not None:
        _check_credit(folder, cfg, state)
        check_whole(folder, state, ledger, members=meets_past(cfg))
    return state


def _check_credit(folder: RunFolder, cfg: Config, state: SavedState) -> None:
    """InputError unless the state, and the one that a collapse goes back to, hold what each
    estimator remembers: else its baseline would begin anew."""
    credits = Credits(cfg)
    states = [state, SavedState(**state.good)] if state.good else [state]
    for role in credits.state():
        rule = f"a checkpoint keeps what {cfg.block(role).algorithm} of {role} remembers"
        for one in states:
            step = f"start a new run with {folder.path / one.folders[role]} as {role}.model"
            lacks = f"{folder.state}: no credit of {role} at step {one.step}"
            hold(role in one.credit or one.step == 0, rule, lacks, step)
            with holding(InvariantError, rule, folder.state, step):
                credits.restore(one.credit)


def check_whole(folder: RunFolder, state: SavedState, ledger: Ledger, members: bool = True) -> None:
    """InputError unless the checkpoints of a state are as they were written and the ledger says the
    same of them. `members`: check the weights of its lineup too."""
    rule = "a ledger is not older than the checkpoint"
    step = "restore it, or start a new run"
    for role, version in state.versions.items():
        newest = ledger.newest(role)
        # Else numbers would be given again, and rows of what was learned are missing.
        known = f"{folder.ledger} knows {role} weights up to version {newest}"
        hold(newest >= version, rule, f"{known}, the checkpoint is version {version}", step)
    differ = differences(folder, state, ledger)
    rule = "state.json, its checkpoints and the ledger say the same"
    step = "restore the file that was changed, or start a new run"
    hold(not differ, rule, "; ".join(differ), step)
    with ThreadPoolExecutor() as pool:  # a large model takes seconds a folder
        paths = [folder.path / path for path in dict.fromkeys(state.folders.values())]
        list(pool.map(lambda path: check_files(path, whole=True), paths))
    if members:
        check_kept(folder, [state.league, state.good.get("league", {})])


def nothing_left(folder: RunFolder, cfg: Config) -> bool:
    """Whether the run in this folder has played all its steps and made its last evaluation."""
    if not folder.resumed or step_of(cfg.resume) is not None:
        return False
    state = read(folder)
    if state is None:
        return False
    reader = RunReader(folder)
    if state.step < cfg.steps or reader.cfg.steps != cfg.steps:
        return False
    if not cfg.data.eval:
        return True
    with suppress(InputError):  # damaged figures tell nothing
        for row in reader.metrics():
            if row["role"] == EVAL and row["step"] == state.step:
                return True
    return False


def go_back(folder: RunFolder, step: int) -> None:
    """Let state.json name the kept checkpoint of `step`. The resumed run rolls its ledger back to
    it."""
    state = read(folder, step=step)
    if state is not None:
        folder.write_state(asdict(replace(state, good={})))
