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
from ssp.config import migration

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
class _Reader:
    known: dict[str, str | None] = field(default_factory=dict)
    branches: list[tuple[bool | None, bool | None]] = field(default_factory=list)
    """Of each open `if`: whether this branch is taken (None: unknown), and whether an earlier one
    was."""

    def overrides(self, text: str, options: Sequence[str]) -> Iterator[Override]:
        """As `read`."""
        for line in _logical(text):
            if self._branch(line) or any(taken is False for taken, _ in self.branches):
                continue
            if match := _ASSIGNMENT.fullmatch(line):
                words = _words(match[2])
                if len(words) <= 1:
                    self.known[match[1]] = self._filled(words[0] if words else "")
                    continue
            if re.search(r"\bsource\b|\$\(|\beval\b", line) and not _DOTTED.search(line):
                continue
            yield from self._arguments(line, options)

    def _arguments(self, line: str, options: Sequence[str]) -> Iterator[Override]:
        words = [word for raw in _words(line) for word in self._split(raw)]
        ours = any(_DOTTED.match(word) for word in words)
        begun = False
        for at, word in enumerate(words):
            if _ENDS.fullmatch(word):
                if begun:
                    return
            elif ours and _OVERRIDE.match(word) and (begun or _DOTTED.match(word)):
                begun = True
                key, _, value = word.partition("=")
                yield Override(key.lstrip("+~"), self._filled(value))
            elif (name := word.partition("=")[0]) in options and (ours or ".sh" in line):
                value = (
                    word.partition("=")[2]
                    if "=" in word
                    else words[at + 1]
                    if at + 1 < len(words)
                    else ""
                )
                yield Override(name, self._filled(value))

    def _split(self, word: str) -> list[str]:
        """A variable that stands alone may hold several words."""
        if _VARIABLE.fullmatch(word) and (value := self._filled(word)):
            return _words(value)
        return [word]

    def _filled(self, text: str) -> str | None:
        """The text with the script's own variables in it; None where one is unknown, or a command
        would have to run."""
        missing = False

        def value(match: re.Match[str]) -> str:
            nonlocal missing
            name, default = match[1] or match[2], match[3]
            found = self.known.get(name, default) if self.known.get(name) != "" else default or ""
            missing |= found is None
            return found or ""

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
            holds = True if word == "else" else self._holds(line)
            now = False if before else (None if before is None else holds)
            self.branches.append(
                (now, True if before else (None if before is None or now is None else now))
            )
        elif word == "fi" and self.branches:
            self.branches.pop()
        else:
            return False
        return True

    def _holds(self, line: str) -> bool | None:
        match = _TEST.search(line)
        if match is None:
            return None
        sides = [self._filled(" ".join(_words(side))) for side in (match[1], match[3])]
        return None if None in sides else (sides[0] == sides[1]) == (match[2] in ("==", "=", "-eq"))


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
    found: dict[str, Override] = {}
    reader = _Reader()
    for override in reader.overrides(text, options):
        found.pop(override.key, None)
        found[override.key] = override
    return list(found.values()), {
        name: value for name, value in reader.known.items() if value is not None
    }


def typed(words: Sequence[str]) -> list[Override]:
    """Overrides as they are typed behind a command: `key=value`, `--option value` or
    `--option=value`. InputError for a word that is none of these."""
    found: dict[str, Override] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        if key.startswith("--") and not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        elif not key.startswith("--") and not _OVERRIDE.match(word):
            raise InputError(
                "what is migrated is a script's file, or key=value words",
                word,
                "see ssp migrate --help",
            )
        found[key.lstrip("+~")] = Override(key.lstrip("+~"), None if "$" in value else value)
    return list(found.values())


def _logical(text: str) -> Iterator[str]:
    """Lines without comments, continued ones joined; indents and blank lines left out."""
    text = "\n".join(
        _COMMENT.sub("", line) for line in text.splitlines() if not line.lstrip().startswith("#")
    )
    for line in re.sub(r"\\[ \t]*\n", " ", text).splitlines():
        if line := line.strip():
            yield line


def _words(line: str) -> list[str]:
    """Words as bash splits them, without their quotes; where the quotes do not match, those between
    blanks."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


Settings = dict[str, Any]


def named(key: str) -> str:
    """The key of theirs that an option of a script sets, or the key itself."""
    found = migration.find(key)
    return found.stands_for if found else key


def system(overrides: Sequence[Override]) -> str:
    """Whose script it is, by the keys that only one of them has; verl where there is none."""
    keys = {named(override.key) for override in overrides}
    own = {
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
    return next(
        (name for name, starts in own.items() if any(key.startswith(starts) for key in keys)),
        "verl",
    )


def recipe(whose: str, overrides: Sequence[Override]) -> str:
    """The shipped config that is nearest to a script of this system."""
    given = {named(override.key): override.value or "" for override in overrides}
    if whose == "ssrl":
        return (
            "ssrl-llama3.2-3b"
            if given.get("trainer.type", "").startswith("llama")
            else "ssrl-qwen2.5-7b"
        )
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
        found = self.given.get(key)
        return found if is_number(found) else default

    def limit(self, name: str) -> int:
        """A limit of the recipe's solver."""
        return int(self.base[f"solver.limits.{name}"])

    @property
    def kl_in_loss(self) -> bool:
        """Whether their KL is a part of the loss."""
        return bool(
            self.get("actor_rollout_ref.actor.use_kl_loss", self.base["solver.kl.place"] == "loss")
        )

    @property
    def kl_in_reward(self) -> bool:
        """Whether it is a part of the reward."""
        return (
            self.get(
                "algorithm.use_kl_in_reward", self.system == "search-r1" and not self.kl_in_loss
            )
            is True
        )


def is_number(value: Any) -> TypeGuard[float]:
    """A finite number that some setting could have; no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def parsed(value: str) -> Any:
    """As Hydra reads it: a number with an exponent is one without a point too."""
    try:
        return (
            float(value)
            if value[:1] in tuple("-+.0123456789") and "e" in value.lower()
            else yaml.safe_load(value)
        )
    except (ValueError, yaml.YAMLError):
        return value
