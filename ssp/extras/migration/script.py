"""What a launch script sets: the `key=value` overrides and `--options` in its text, with its own
variables filled in.

Owns the little of bash that such scripts use: assignments, `$X`, `${X}`, `${X:-default}`, `if [ a
== b ]`, continued lines and comments. Promises that the text is only read: nothing in it runs, and
no variable comes from the environment; a value that needs more than this is None. Whose script it
is, its keys tell."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import yaml

from ssp.base.errors import InputError, hold
from ssp.extras import migration

MOST = 1_000_000
"""Characters of a script."""
LONGEST = 10_000  # characters of a variable's value; a longer one counts as unknown
_ASSIGNMENT = re.compile(r"(?:export\s+|local\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_]\w*(?:\.\w+)*=", re.ASCII)
_DOTTED = re.compile(r"[+~]{0,2}[A-Za-z_]\w*(?:\.\w+)+=", re.ASCII)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^{}]*))?\})")
_COMMENT = re.compile(r"(?:^|\s)#[^'\"]*$")
_TEST = re.compile(r"\[\[?\s+(.+?)\s+(==|=|!=|-eq|-ne)\s+(.+?)\s+\]\]?")
_ENDS = re.compile(r"[|;&<>]|\d?>.*")


@dataclass(frozen=True)
class Override:
    """One thing that a script sets: `key` as it stands there, without Hydra's +, and `value` (None:
    not in the script)."""

    key: str
    value: str | None


@dataclass
class _Shell:
    """The script's own variables, and where its `if`s stand."""

    known: dict[str, str | None] = field(default_factory=dict)
    branches: list[tuple[bool | None, bool | None]] = field(default_factory=list)
    """Of each open `if`: whether this branch is taken (None: unknown), and whether an earlier one
    was."""

    def overrides(self, text: str, options: Sequence[str]) -> Iterator[Override]:
        """As `read`."""
        for line in _logical(text):
            if self._branch(line) or any(taken is False for taken, _ in self.branches):
                continue
            assigned = _ASSIGNMENT.fullmatch(line)
            words = _words(assigned[2]) if assigned else []
            runs = re.search(r"\bsource\b|\$\(|\beval\b", line) and not _DOTTED.search(line)
            if assigned and len(words) <= 1:
                self.known[assigned[1]] = self._filled(words[0] if words else "")
            elif not runs:
                yield from self._arguments(line, options)

    def _arguments(self, line: str, options: Sequence[str]) -> Iterator[Override]:
        words = [word for raw in _words(line) for word in self._split(raw)]
        ours = any(_DOTTED.match(word) for word in words)
        begun = False
        for at, word in enumerate(words):
            key, equals, value = word.partition("=")
            if _ENDS.fullmatch(word):
                if begun:
                    return
            elif ours and _OVERRIDE.match(word) and (begun or _DOTTED.match(word)):
                begun = True
                yield Override(key.lstrip("+~"), self._filled(value))
            elif key in options and (ours or ".sh" in line):
                if not equals:
                    value = "".join(words[at + 1 : at + 2])
                yield Override(key, self._filled(value))

    def _split(self, word: str) -> list[str]:
        """A variable that stands alone may hold several words."""
        value = self._filled(word) if _VARIABLE.fullmatch(word) else None
        return _words(value) if value else [word]

    def _filled(self, text: str) -> str | None:
        """The text with the script's own variables in it; None where one is unknown, or a command
        would have to run."""
        missing = False

        def value(match: re.Match[str]) -> str:
            nonlocal missing
            name, default = match[1] or match[2], match[3]
            held = self.known.get(name, default)
            if held == "":
                held = default or ""
            missing |= held is None
            return held or ""

        for _ in range(2):  # a default may be a variable
            text = _VARIABLE.sub(value, text)
        return None if missing or "$" in text or "`" in text or len(text) > LONGEST else text

    def _branch(self, line: str) -> bool:
        """Whether the line belongs to an `if`, which is followed where the script itself decides
        it."""
        word = line.partition(" ")[0].rstrip(";")
        if word == "if":
            taken = self._holds(line)
            self.branches.append((taken, taken))
        elif word in ("elif", "else") and self.branches:
            _, before = self.branches.pop()
            taken = before
            if before is False:  # no branch was: this one may be
                taken = before = True if word == "else" else self._holds(line)
            elif before:
                taken = False
            self.branches.append((taken, before))
        elif word == "fi" and self.branches:
            self.branches.pop()
        else:
            return False
        return True

    def _holds(self, line: str) -> bool | None:
        match = _TEST.search(line)
        if match is None:
            return None
        left, right = [self._filled(" ".join(_words(side))) for side in (match[1], match[3])]
        if left is None or right is None:
            return None
        return (left == right) is (match[2] in ("==", "=", "-eq"))


def read(text: str, options: Sequence[str] = ()) -> tuple[list[Override], dict[str, str]]:
    """What the text sets, in its order, of a key that comes twice the last; its own variables at
    its end. `options`: names of `--options` that count. InputError for a text of more than `MOST`
    characters."""
    hold(
        len(text) <= MOST,
        "a launch script is a short text",
        f"{len(text):,} characters",
        "give the script alone",
    )
    last: dict[str, Override] = {}
    shell = _Shell()
    for override in shell.overrides(text, options):
        last.pop(override.key, None)
        last[override.key] = override
    known = {name: value for name, value in shell.known.items() if value is not None}
    return list(last.values()), known


def typed(words: Sequence[str]) -> list[Override]:
    """Overrides as they are typed behind a command: `key=value`, `--option value` or
    `--option=value`. InputError for a word that is none of these."""
    last: dict[str, Override] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        if key.startswith("--") and not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        elif not key.startswith("--") and not _OVERRIDE.match(word):
            rule = "what is migrated is a script's file, or key=value words"
            raise InputError(rule, word, "see ssp migrate --help")
        name = key.lstrip("+~")
        last[name] = Override(name, None if "$" in value else value)
    return list(last.values())


def _logical(text: str) -> Iterator[str]:
    """Lines without comments, continued ones joined; indents and blank lines left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    said = "\n".join(_COMMENT.sub("", line) for line in lines)
    for line in re.sub(r"\\[ \t]*\n", " ", said).splitlines():
        if line.strip():
            yield line.strip()


def _words(line: str) -> list[str]:
    """Words as bash splits them, without their quotes; where the quotes do not match, those between
    blanks."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


Settings = dict[str, Any]
OWN = {
    "ssp": ("self_play.", "quark.", "custom_reward_functions."),
    "ssrl": ("data.max_infer_length", "trainer.sim2real", "trainer.use_entropy"),
    "research": (
        "data.use_re_call",
        "data.apply_chat",
        "data.prompt_template_name",
        "data.search_url",
    ),
    "search-r1": (
        "data.max_start_length",
        "max_turns",
        "do_search",
        "retriever.",
        "algorithm.no_think_rl",
    ),
}
"""System → how keys begin that it alone has."""


def named(key: str) -> str:
    """The key of theirs that an option of a script sets, or the key itself."""
    row = migration.find(key)
    return row.stands_for if row else key


def system(overrides: Sequence[Override]) -> str:
    """Whose script it is, by the keys that only one of them has; verl where there is none."""
    keys = {named(override.key) for override in overrides}
    for name, starts in OWN.items():
        if any(key.startswith(starts) for key in keys):
            return name
    return "verl"


def recipe(whose: str, overrides: Sequence[Override]) -> str:
    """The shipped config that is nearest to a script of this system."""
    given = {named(override.key): override.value or "" for override in overrides}
    if whose == "ssrl":
        llama = given.get("trainer.type", "").startswith("llama")
        return "ssrl-llama3.2-3b" if llama else "ssrl-qwen2.5-7b"
    if whose in ("ssp", "research"):
        return f"{whose}-qwen2.5-7b"
    if any(key.startswith("algorithm.ref_policy_ema") for key in given):
        return "ema-pg-qwen2.5-3b"
    size = "7b" if "7b" in given.get("actor_rollout_ref.model.path", "").lower() else "3b"
    estimator = "ppo" if given.get("algorithm.adv_estimator") == "gae" else "grpo"
    return f"search-r1-qwen2.5-{size}-{estimator}"


class Facts:
    """All overrides of a script by key. `system`: search-r1, ssp, ssrl, research or verl; `base`:
    the recipe below, whole, as dotted keys of ours and their values."""

    def __init__(self, overrides: Sequence[Override], system: str, base: Mapping[str, Any]) -> None:
        self.given = {named(o.key): parsed(o.value) for o in overrides if o.value is not None}
        self.system, self.base = system, base

    def get(self, key: str, default: Any = None) -> Any:
        """The value that the script sets for a key of theirs."""
        return self.given.get(key, default)

    def number(self, key: str, default: float) -> float:
        """The same, where it is a number."""
        value = self.given.get(key)
        return value if is_number(value) else default

    def limit(self, name: str) -> int:
        """A limit of the recipe's solver."""
        return int(self.base[f"solver.limits.{name}"])

    @property
    def kl_in_loss(self) -> bool:
        """Whether their KL is a part of the loss."""
        usual = self.base["solver.kl.place"] == "loss"
        return bool(self.get("actor_rollout_ref.actor.use_kl_loss", usual))

    @property
    def kl_in_reward(self) -> bool:
        """Whether it is a part of the reward."""
        usual = self.system == "search-r1" and not self.kl_in_loss
        return self.get("algorithm.use_kl_in_reward", usual) is True


def is_number(value: Any) -> TypeGuard[float]:
    """A finite number that some setting could have; no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def parsed(value: str) -> Any:
    """As Hydra reads it: a number with an exponent is one without a point too."""
    try:
        if value[:1] in tuple("-+.0123456789") and "e" in value.lower():
            return float(value)
        return yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        return value
