"""Values alone, whatever stands beside them: known names, ranges, presets. What may stand together
is each wing's own.

Promises that all that is refused is said at once, and that a rule which speaks of a refused value
is left out."""

import copy
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit

from ssp.base.errors import InputError, Refusals, hold
from ssp.config import own
from ssp.config.fields import INF
from ssp.config.schema import Config
from ssp.config.tables import PLACES, PRESETS, choices, ranges

Rule = Callable[[Config], None]
"""Raises InputError for settings that cannot stand together."""

MOST_COUNTED = 10**12
"""Where a whole number has no other end."""


def check(cfg: Config, rules: Sequence[Rule]) -> None:
    """Names and ranges, then `rules`, in order. InputError with all that fail, of a combination one
    for each role; one that speaks of a setting whose own value is refused is left out."""
    if wrong := values(cfg):
        cfg = copy.deepcopy(cfg)
        for key in wrong:
            above, _, last = key.rpartition(".")
            setattr(get(cfg, above) if above else cfg, last, get(Config(), key))
    about = re.compile("|".join(rf"(?<![\w.]){re.escape(key)}(?!\w)" for key in wrong) or "(?!)")
    found = [error for key, error in wrong.items() if not _inherited(key, wrong)]
    found += [error for error in refused(cfg, rules) if not about.search(str(error))]
    if found:
        raise found[0] if len(found) == 1 else Refusals(found)


def values(cfg: Config) -> dict[str, InputError]:
    """Key → why its value alone is refused."""
    tests = {
        key: partial(check_choice, known=known, place=key in PLACES)
        for key, known in choices().items()
    }
    tests |= {
        key: partial(check_range, low=low, high=high) for key, (low, high) in ranges().items()
    }
    wrong: dict[str, InputError] = {}
    for pattern, test in tests.items():
        for key in expand(pattern):
            try:
                test(key, get(cfg, key))
            except InputError as error:
                wrong[key] = error
    return wrong


def _inherited(key: str, wrong: dict[str, InputError]) -> bool:
    """Whether it is a role's key whose value was refused among the defaults already."""
    role, _, rest = key.partition(".")
    above = wrong.get(f"defaults.{rest}") if role in ("proposer", "solver") else None
    return above is not None and above.found == wrong[key].found


def refused(cfg: Config, rules: Sequence[Rule]) -> list[InputError]:
    """What each of `rules` refuses, without repetitions. A rule stops at the first role that breaks
    it, so that it is asked again from the last one."""
    found: dict[str, InputError] = {}
    backwards = copy.copy(cfg)
    backwards.__class__ = _Backwards
    for rule in rules:
        for view in (cfg, backwards):
            try:
                rule(view)
                break
            except Refusals as errors:
                found |= {error.rule: error for error in errors.each if error.rule not in found}
            except InputError as error:
                found.setdefault(error.rule, error)
    return list(found.values())


class _Backwards(Config):
    """A configuration whose roles come last first."""

    @property
    def roles(self) -> tuple[str, ...]:
        """See `Config.roles`."""
        return super().roles[::-1]


def get(cfg: Config, key: str) -> Any:
    """The value of a dotted key."""
    return attrgetter(key)(cfg)


def expand_preset(raw: dict[str, Any]) -> None:
    """Write the bounds of `schedule.preset` into the raw mapping; InputError when a bound says
    something else."""
    schedule = raw.get("schedule", {})
    preset = schedule.get("preset", "")
    if preset not in PRESETS:
        return
    bounds = schedule.setdefault("max_staleness", {})
    for role, bound in zip(("proposer", "solver"), PRESETS[preset], strict=True):
        given, key = bounds.setdefault(role, bound), f"schedule.max_staleness.{role}"
        rule = f"schedule.preset={preset} stands for {key}={bound}"
        hold(given == bound, rule, f"{key}={given}", "set the preset or the bounds, not both")


def check_choice(key: str, value: str, known: tuple[str, ...], place: bool = False) -> None:
    """A name must be one that is built in, or where the key takes a `place` that of a user's own
    code."""
    if value in known or (place and own.is_own(value)):
        return
    listed = ", ".join(
        [*(name or "''" for name in known), *(["or your own my_file.py:name"] if place else [])]
    )
    raise InputError(
        f"{key} is one of {listed}", value or "''", f"set {key}={known[0] or known[-1]}"
    )


def check_range(key: str, value: float, low: float, high: float) -> None:
    """A number must be finite and lie between two ends, both allowed."""
    if isinstance(value, int) and abs(value) > (MOST_COUNTED if high == INF else 2**63 - 1):
        raise InputError(
            f"{key} is a number that a run may reach", f"{value}", "type a smaller one"
        )
    if math.isfinite(value) and low <= value <= high:
        return
    hold(low != -INF, f"{key} is a finite number", value, f"set {key}=0")
    span = f"at least {low:g}" if high == INF else f"from {low:g} to {high:g}"
    raise InputError(
        f"{key} is {span}", value, f"set {key}={low:g} or more" if high == INF else f"set it {span}"
    )


def check_address(key: str, url: str, step: str) -> None:
    """A server has an http(s) base address, without what is secret: run folders and messages show
    it."""
    if own.sealed(url):
        return
    try:
        parts = urlsplit(url)
        holds = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = "@" in parts.netloc
    except ValueError:  # a port that is none, an unclosed bracket
        holds, secret = False, "@" in url
    rule = f"{key} is the http(s) base address of a server, without user, password and query"
    found = "an @ before the host, or a ?" if secret or "?" in url else repr(url)
    hold(holds and not secret and "?" not in url, rule, found, step)


def expand(pattern: str) -> list[str]:
    """`{role}.x` as `defaults.x`, `proposer.x`, `solver.x`: a bad default is named where it was
    written."""
    if "{role}" not in pattern:
        return [pattern]
    return [pattern.format(role=role) for role in ("defaults", "proposer", "solver")]
