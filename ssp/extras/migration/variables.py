"""The environment variables of SSP's launch script as settings of ours (`variables.yaml`).

Promises that a variable counts only where neither the config's file nor the command line sets the
key, or another one that decides the same. Each variable that is seen is told in one line, and no
line holds a value."""

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from ssp.base.errors import hold
from ssp.config.gone import PAGE

_TABLE = yaml.safe_load(Path(__file__).with_name("variables.yaml").read_text(encoding="utf-8"))
TEMPLATES: dict[str, str] = _TABLE["templates"]
"""Values of QUARK_SEARCH_CHAT_TEMPLATE → our protocols."""
ACCEPTED: dict[str, list[str]] = _TABLE["accepted"]
"""Variables that are accepted → the key of ours, and a word."""
TOLD: dict[str, str] = _TABLE["told"]
"""Variables whose names belong to anybody: not taken, and told only beside one that SSP alone
has."""


def environment(
    env: Mapping[str, str], stated: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """Settings (`key=value`, to go below what is typed) from the variables that `env` has, and a
    line for each variable. `stated`: dotted keys that the config's file or the command line sets,
    with their values as written; these win. An empty variable is none. InputError for a template
    that is none of SSP's."""
    settings = []
    notes = []
    for variable, (key, _) in ACCEPTED.items():
        value = env.get(variable, "").strip()
        if not value:
            continue
        same = [name for name in stated if _same(name, key)]
        instead = [name for name, text in stated.items() if _instead(name, text, key)]
        if any(f"oc.env:{variable}" in str(stated[name]) for name in same + instead):
            notes.append(f"{variable} sets {key}, as the config says")
        elif same or instead:
            by = key if same else ", ".join(instead)
            notes.append(f"{variable} is not used: the config or the command line sets {by}")
        else:
            free = []
            for name, setting in _settings(variable, key, value, env).items():
                if not any(_same(other, name) for other in stated):
                    free.append(name)
                    settings.append(f"{name}={json.dumps(setting)}")
            notes.append(f"{variable} sets {', '.join(free)}")
    if notes:
        notes += [f"{name} is not used: set {key}" for name, key in TOLD.items() if env.get(name)]
    return settings, [f"{note} ({PAGE})" for note in notes]


def _settings(variable: str, key: str, value: str, env: Mapping[str, str]) -> dict[str, str]:
    """Keys of ours and their values."""
    if variable == "SEARCH_IP":
        return {key: f"http://{value}:8000"}
    if variable == "QUARK_BASE_URL":
        return {key: value, "judge.kind": "llm"}
    if variable == "SOURCE_ACTOR_CHECKPOINT_DIR":
        step = env.get("SOURCE_ACTOR_CHECKPOINT_ITERATION_DIRNAME", "")
        return {key: str(Path(value) / step)}
    if variable == "QUARK_SEARCH_CHAT_TEMPLATE":
        rule = f"{variable} is one of {', '.join(TEMPLATES)}"
        step = "correct it, or unset it and set protocol"
        hold(value in TEMPLATES, rule, value, step)
        return {key: TEMPLATES[value]}
    return {key: value}


def _same(stated: str, key: str) -> bool:
    """Whether a stated key sets `key`: itself, or for one of `defaults` a role's own."""
    block, _, rest = key.partition(".")
    owned = (f"proposer.{rest}", f"solver.{rest}") if block == "defaults" else ()
    return stated == key or stated in owned


def _instead(stated: str, value: object, key: str) -> bool:
    """Whether a stated key decides what `key` would: the folder of a run follows from its name, and
    from the run that it resumes."""
    resumed = stated == "resume" and value not in ("never", "auto")
    return key == "run.dir" and bool(value) and (stated == "run.name" or resumed)
