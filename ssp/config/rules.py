"""Which values make sense: known names, ranges, and what may stand together.

Owns the judgement of a typed `Config`, each rule small and named by the key it guards. Promises to fail closed: a setting
whose feature is not built yet is refused, never ignored. Refuses to read files or to change values; the one exception is
`expand_preset`, which turns a preset into the bounds that it stands for.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import InputError, Refusals
from ssp.base.printable import printable
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.config import (
    engine_rules,
    game_rules,
    judge_rules,
    learning_rules,
    limit_rules,
    own,
    placement_rules,
    referee_rules,
    reward_rules,
    transfer_rules,
)
from ssp.config.schema import Config
from ssp.config.tables import CHOICES, COLDEST, INF, PLACES, PRESETS, RANGES
from ssp.game import protocols
from ssp.selfplay.league import rules as league_rules

MOST_COUNTED = 10**12
"""Where a whole number has no other end."""


def check(cfg: Config) -> None:
    """Every rule, in order: names, ranges, combinations. InputError with all that fail, of a combination one for each role;
    one that speaks of a setting whose own value is refused is left out."""
    wrong = values(cfg)
    if wrong:
        cfg = copy.deepcopy(cfg)
        for key in wrong:
            _put(cfg, key, get(Config(), key))
    about = re.compile("|".join(rf"(?<![\w.]){re.escape(key)}(?!\w)" for key in wrong) or "(?!)")
    found = [error for key, error in wrong.items() if not _inherited(key, wrong)]
    found += [error for error in refused(cfg, COMBINATIONS) if not about.search(str(error))]
    if found:
        raise found[0] if len(found) == 1 else Refusals(found)


def values(cfg: Config) -> dict[str, InputError]:
    """Key → why its value alone is refused."""
    wrong: dict[str, InputError] = {}
    tests: list[tuple[str, Callable[[str, Any], None]]] = [
        *((pattern, partial(check_choice, known=known, place=pattern in PLACES)) for pattern, known in CHOICES.items()),
        *((pattern, partial(check_range, low=low, high=high)) for pattern, (low, high) in RANGES.items()),
    ]
    for pattern, test in tests:
        for key in _expand(pattern):
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


def refused(cfg: Config, rules: Sequence[Callable[[Config], None]]) -> list[InputError]:
    """What each of `rules` refuses, without repetitions. A rule stops at the first role that breaks it, so that it is asked
    again from the last one."""
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


def warnings(cfg: Config) -> list[str]:
    """What is allowed and deserves a second thought, a line each."""
    found = [*reward_rules.warnings(cfg), *learning_rules.warnings(cfg)]
    if cfg.protocol == "ssrl" and cfg.solver.search.kind == "retriever":
        found.append(
            "protocol=ssrl asks the solver to write the information itself, and solver.search.kind=retriever answers in its "
            "place: set solver.search.kind=self (or first_k, entropy), or protocol=search-r1 for real searches"
        )
    return found


def get(cfg: Config, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = cfg
    for step in key.split("."):
        value = getattr(value, step)
    return value


def _put(cfg: Config, key: str, value: Any) -> None:
    above, _, last = key.rpartition(".")
    setattr(get(cfg, above) if above else cfg, last, value)


def expand_preset(raw: dict[str, Any]) -> None:
    """Write the bounds of `schedule.preset` into the raw mapping; InputError when a bound says something else."""
    schedule = raw.get("schedule", {})
    preset = schedule.get("preset", "")
    if preset not in PRESETS:
        return
    bounds = schedule.setdefault("max_staleness", {})
    for role, bound in zip(("proposer", "solver"), PRESETS[preset], strict=True):
        if bounds.setdefault(role, bound) != bound:
            raise InputError(
                f"schedule.preset={preset} stands for schedule.max_staleness.{role}={bound}",
                f"schedule.max_staleness.{role}={bounds[role]}",
                "set the preset or the bounds, not both",
            )


def check_choice(key: str, value: str, known: tuple[str, ...], place: bool = False) -> None:
    """A name must be one that is built in, or where the key takes a `place` that of a user's own code."""
    if value in known or (place and own.is_own(value)):
        return
    listed = ", ".join([*(name or "''" for name in known), *(["or your own my_file.py:name"] if place else [])])
    raise InputError(f"{key} is one of {listed}", value or "''", f"set {key}={known[0] or known[-1]}")


def check_range(key: str, value: float, low: float, high: float) -> None:
    """A number must be finite and lie between two ends, both allowed."""
    if isinstance(value, int) and abs(value) > (MOST_COUNTED if high == INF else 2**63 - 1):
        raise InputError(f"{key} is a number that a run may reach", f"{value}", "type a smaller one")
    if math.isfinite(value) and low <= value <= high:
        return
    if low == -INF:
        raise InputError(f"{key} is a finite number", value, f"set {key}=0")
    span = f"at least {low:g}" if high == INF else f"from {low:g} to {high:g}"
    raise InputError(f"{key} is {span}", value, f"set {key}={low:g} or more" if high == INF else f"set it {span}")


def training_samples(cfg: Config) -> None:
    """A policy gradient needs sampled actions: greedy training rollouts have no exploration and no usable log-probs."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy != "frozen" and block.sampling.temperature == 0:
            raise InputError(f"{role}.sampling.temperature is above 0 for a role that learns", "0", "set it to 1.0")


def temperatures_are_usable(cfg: Config) -> None:
    """A temperature near 0 overflows the softmax, which would make every episode void."""
    for key in ("eval.temperature", *_expand("{role}.sampling.temperature")):
        if 0 < get(cfg, key) < COLDEST:
            raise InputError(f"{key} is 0 (greedy) or at least {COLDEST}", get(cfg, key), f"set {key}=0 or {COLDEST}")


def proposals_can_be_checked(cfg: Config) -> None:
    """The referee's settings matter where somebody proposes."""
    if PROPOSER in cfg.roles:
        found = refused(cfg, (*referee_rules.RULES, proposer_can_search_enough))
        if found:
            raise Refusals(found)


def proposer_can_search_enough(cfg: Config) -> None:
    """A question needs `min_searches` searches, which the proposer must be allowed to make."""
    if cfg.referee.min_searches > cfg.proposer.limits.searches:
        raise InputError(
            "proposer.limits.searches is at least referee.min_searches",
            f"{cfg.proposer.limits.searches} against {cfg.referee.min_searches}",
            "raise the first or lower the second",
        )


def protocol_exists(cfg: Config) -> None:
    """`protocol` is a shipped id or a readable file, knows the roles that play, and lets a policy that is to answer
    itself go on after its search."""
    protocol = protocols.get(cfg.protocol)
    for role in cfg.roles:
        protocol.role(role)
        kind = cfg.block(role).search.kind
        if protocol.observation_form.as_turn and kind != "retriever":
            rule = f"{role}.search.kind is retriever where a search ends the turn (protocol {protocol.id})"
            raise InputError(rule, kind, "set protocol=ssrl, or another one with information in the policy's own turn")


def engines_have_an_address(cfg: Config) -> None:
    """An engine behind HTTP has a base address, without a key in it: run folders and messages show it."""
    for role in ("proposer", "solver"):
        engine = cfg.block(role).engine
        if engine.kind != "endpoint":
            continue
        if not judge_rules.is_address(engine.url):
            found, step = repr(engine.url), f"e.g. {role}.engine.url=http://127.0.0.1:8000/v1"
            raise InputError("an endpoint (--policy, {role}.engine.url) is an http(s) address", found, step)
        if "@" in urlsplit(engine.url).netloc or "?" in engine.url:
            raise InputError(
                "an endpoint's address (--policy, {role}.engine.url) holds no user, password or query",
                "an @ before the host, or a ?",
                f"put the key into an environment variable, and its name into {role}.engine.key_env",
            )


def retriever_has_an_address(cfg: Config) -> None:
    """A search server has a base address, without a password in it: run folders and messages show it."""
    for key, url in [("retriever.url", url) for url in cfg.retriever.url.split()] + [
        ("retriever.online.url", url) for url in [cfg.retriever.online.url] if url and not own.sealed(url)
    ]:
        if not judge_rules.is_address(url) or "@" in urlsplit(url).netloc:
            rule = f"{key} is the http(s) address of a search server, without user and password"
            raise InputError(rule, "an @ before the host" if "@" in url else repr(url), "e.g. http://127.0.0.1:8000")


def data_corpus_has_one_source(cfg: Config) -> None:
    """data.corpus is searched by the run's own shards, by a server, or by an engine of the web."""
    if cfg.retriever.url and cfg.retriever.online.engine:
        rule = "data.corpus is searched at retriever.url or by retriever.online.engine, not both"
        raise InputError(rule, f"{cfg.retriever.url} and {cfg.retriever.online.engine}", "leave one of them out")


def hedges_have_a_replica(cfg: Config) -> None:
    """A hedged search asks another replica of the shard."""
    block = cfg.retriever
    if block.hedge and block.replicas == 1:
        rule = "retriever.hedge asks another replica, so retriever.replicas is at least 2"
        raise InputError(rule, f"hedge={block.hedge:g}, replicas=1", "set retriever.replicas=2, or hedge=0")
    if block.hedge >= block.timeout:
        rule = "retriever.hedge is shorter than retriever.timeout"
        raise InputError(rule, f"{block.hedge:g} against {block.timeout:g} s", "lower retriever.hedge")


def batch_fits_queue(cfg: Config) -> None:
    """A queue takes a training batch whole."""
    sizes = {role: cfg.block(role).batch * (cfg.game.attempts if role == SOLVER else 1) for role in cfg.roles}
    largest = max(sizes.values())
    if largest > cfg.queue.items:
        raise InputError(
            "queue.items holds at least one training batch (proposer.batch, solver.batch x game.attempts)",
            f"queue.items={cfg.queue.items} for a batch of {largest}",
            f"set queue.items={2 * largest}",
        )
    nbytes = BYTES_A_TOKEN * max(size * cfg.block(role).limits.longest for role, size in sizes.items())
    if nbytes > cfg.queue.bytes:
        raise InputError(
            f"queue.bytes holds the longest training batch ({BYTES_A_TOKEN} bytes a token of limits.total_tokens)",
            f"queue.bytes={cfg.queue.bytes} for {nbytes} bytes",
            f"set queue.bytes={2 * nbytes}",
        )


def eval_sets_are_distinct(cfg: Config) -> None:
    """Evaluation sets are told apart by name in the metrics."""
    sets = [item.name for item in cfg.data.eval]
    if len(set(sets)) != len(sets) or "" in sets:
        raise InputError("each evaluation set has a name of its own", ", ".join(sets), "rename one of them")
    if cfg.eval.every > 0 and not sets:
        raise InputError("periodic evaluation needs an evaluation set", "data.eval=[]", "add one, or set eval.every=0")


def hops_are_known(cfg: Config) -> None:
    """The generated worlds ask questions of 1 to 4 hops; each is scored once."""
    hops = cfg.eval.hops
    if not hops or len(set(hops)) != len(hops) or not set(hops) <= {1, 2, 3, 4}:
        raise InputError("eval.hops lists distinct hops from 1 to 4", hops, "set eval.hops=[1,2,3]")


def run_name_is_a_name(cfg: Config) -> None:
    """`run.name` becomes a folder under runs/."""
    name = cfg.run.name
    if "/" in name or name in (".", ".."):
        raise InputError("run.name is one folder name", name, "use run.dir=PATH for another place")
    if "\n" in name or "\t" in name or printable(name) != name:
        raise InputError("run.name holds characters that can be shown", repr(name), "leave the others out")


def node_ports_are_a_span(cfg: Config) -> None:
    """Two ends of a range of ports, or nothing."""
    span = cfg.ray.node_ports
    low, dash, high = span.partition("-")
    if span and not (dash and low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) <= 65535):
        raise InputError("ray.node_ports is a range from 1024 to 65535", span, 'write for example "20000-20999"')


COMBINATIONS: tuple[Callable[[Config], None], ...] = (
    protocol_exists,
    *learning_rules.RULES,
    *game_rules.RULES,
    *league_rules.RULES,
    training_samples,
    temperatures_are_usable,
    node_ports_are_a_span,
    proposals_can_be_checked,
    *limit_rules.RULES,
    engines_have_an_address,
    *engine_rules.RULES,
    *transfer_rules.RULES,
    retriever_has_an_address,
    data_corpus_has_one_source,
    hedges_have_a_replica,
    batch_fits_queue,
    eval_sets_are_distinct,
    hops_are_known,
    run_name_is_a_name,
    *judge_rules.RULES,
    *reward_rules.RULES,
    *placement_rules.RULES,
)


def _expand(pattern: str) -> list[str]:
    """`{role}.x` as `defaults.x`, `proposer.x`, `solver.x`: a bad default is named where it was written."""
    if "{role}" not in pattern:
        return [pattern]
    return [pattern.format(role=role) for role in ("defaults", "proposer", "solver")]
