"""What state.json says of a run's checkpoints, and whether it is to be believed: a consistent set
of learners (the pair, or the solver alone) at one step, one folder a role, the same one for roles
that share a policy."""

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


@dataclass
class SavedState:
    """What state.json holds: the step all learners are at, their folders and versions, replay pool,
    data cursor, each role's health, and how often the run went back after a collapse. `good`: the
    newest state whose weights have shown no sign of one; empty when it is this one, or nobody
    watches. `league`: see `Lineup.state`; `credit`: see `Credits.state`."""

    step: int = 0
    folders: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    pool: list[dict[str, Any]] = field(default_factory=list)
    cursor: dict[str, Any] = field(default_factory=lambda: {"next": 0, "open": []})
    health: dict[str, dict[str, Any]] = field(default_factory=dict)
    rollbacks: int = 0
    good: dict[str, Any] = field(default_factory=dict)
    league: dict[str, Any] = field(default_factory=dict)
    credit: dict[str, dict[str, Any]] = field(default_factory=dict)


def read(
    folder: RunFolder, roles: Sequence[str] = (), step: int | None = None
) -> SavedState | None:
    """What state.json holds, or held at `step`; None without one. InputError when it is not as it
    was written, or names other folders than the roles' (without `roles`: whoever has one)."""
    found = folder.read_state(step)
    if found is None:
        return None
    written = found.pop("sha256", None)
    # `credit` is younger than the rest.
    wrong = sorted(({*found} | {"credit"}) ^ {entry.name for entry in fields(SavedState)})
    if not wrong and not set(roles or found["folders"]) == set(found["folders"]) == set(
        found["versions"]
    ):
        wrong = ["folders"]
    if wrong or written != own_digest(found):
        what = f"{folder.state}: {', '.join(wrong) or 'its sha256'}"
        raise InputError(
            "state.json must be as it was written", what, "restore the file, or start a new run"
        )
    for body in (found, found["good"]):
        if body and "credit" not in body:
            body["credit"] = _credit_of_learners(folder, body["folders"])
    return SavedState(**found)


def _credit_of_learners(folder: RunFolder, folders: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What a checkpoint's learners say that their estimators remember, by role: where a state.json
    says nothing of credit they were the learners'."""
    credit = {}
    for role, path in folders.items():
        with suppress(KeyError, TypeError, ValueError):
            remembered = dict(read_record(folder.path / path)["algorithm"][role]["state"])
            if remembered:
                credit[role] = remembered
    return credit


def differences(folder: RunFolder, state: SavedState, ledger: Ledger) -> list[str]:
    """What the checkpoints of a state say otherwise of themselves (`ssp.json`), and the ledger of
    their updates."""
    found = []
    for path in dict.fromkeys(state.folders.values()):
        roles = [role for role, its in state.folders.items() if its == path]
        record = read_record(folder.path / path)
        at, updates, live = (
            record.get("run_step"),
            record.get("step"),
            ledger.updates(roles, state.step),
        )
        if (version := record.get("version")) not in [state.versions[role] for role in roles]:
            found.append(
                f"state.json names {path} for version {state.versions[roles[-1]]}, it is {version}"
            )
        if not isinstance(at, int) or at > state.step:
            found.append(f"state.json says step {state.step}, {path} is of step {at}")
        if isinstance(updates, int) and updates != live:
            found.append(
                f"{path} contains {updates} updates, the ledger's commits up to step {state.step}"
                f" are {live}"
            )
    return found


def check_resumable(folder: RunFolder, cfg: Config, targets: Targets) -> list[str]:
    """Everything that a resumed run needs of its folder, before anything starts; what it lacks and
    can do without. InputError names what is wrong, and which checkpoints to go on from instead."""
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
    """The state of a run's newest checkpoint, or of the one at `step`; InputError unless all of it
    is as it was written."""
    state = read(folder, cfg.roles, step)
    if state is not None:
        _check_credit(folder, cfg, state)
        check_whole(folder, state, ledger, members=meets_past(cfg))
    return state


def _check_credit(folder: RunFolder, cfg: Config, state: SavedState) -> None:
    """InputError unless every estimator that remembers earlier rounds finds them in the state, and
    in the one that a collapse goes back to: its baseline would begin anew."""
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
    """InputError unless the checkpoints of a state, and with `members` those of its lineup, are as
    they were written, and the ledger says the same of them."""
    for role, version in state.versions.items():
        newest = ledger.newest(role)
        # Else numbers would be given again, and rows of what was learned are missing.
        found = (
            f"{folder.ledger} knows {role} weights up to version {newest}, the checkpoint is"
            f" version {version}"
        )
        hold(
            newest >= version,
            "a ledger is not older than the checkpoint",
            found,
            "restore it, or start a new run",
        )
    differ, rule = (
        differences(folder, state, ledger),
        "state.json, its checkpoints and the ledger say the same",
    )
    hold(
        not differ, rule, "; ".join(differ), "restore the file that was changed, or start a new run"
    )
    with ThreadPoolExecutor() as pool:  # of large models it is seconds a folder
        paths = [folder.path / path for path in dict.fromkeys(state.folders.values())]
        list(pool.map(lambda path: check_files(path, whole=True), paths))
    if members:
        check_kept(folder, [state.league, state.good.get("league", {})])


def nothing_left(folder: RunFolder, cfg: Config) -> bool:
    """Whether a run that would go on in this folder has played all its steps, and made its last
    evaluation."""
    if not folder.resumed or step_of(cfg.resume) is not None or (state := read(folder)) is None:
        return False
    reader = RunReader(folder)
    if state.step < cfg.steps or reader.cfg.steps != cfg.steps:
        return False
    with suppress(InputError):  # of figures that are damaged nothing is known
        return not cfg.data.eval or any(
            row["role"] == EVAL and row["step"] == state.step for row in reader.metrics()
        )
    return False


def go_back(folder: RunFolder, step: int) -> None:
    """Let state.json name the kept checkpoint of `step`; the run that resumes rolls its ledger back
    to that."""
    if (state := read(folder, step=step)) is not None:
        folder.write_state(asdict(replace(state, good={})))
