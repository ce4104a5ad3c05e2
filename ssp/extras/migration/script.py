"""What a launch script sets: the `key=value` overrides and `--options` in its text, with its own
variables filled in.

Owns the little of bash that such scripts use: assignments, `$X`, `${X}`, `${X:-default}`, `if [ a
== b ]`, continued lines and comments. Promises that the text is only read: nothing in it runs, and
no variable comes from the environment; a value that needs more than this is None."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ssp.base.errors import InputError, hold

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
_RUNS = re.compile(r"\bsource\b|\$\(|\beval\b")


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
    """Of each open `if`: whether this branch is taken, and whether this or an earlier one is (None:
    unknown)."""

    def overrides(self, lines: Sequence[str], options: Sequence[str]) -> Iterator[Override]:
        """What the lines set, in their order, as `read`."""
        for line in lines:
            if self._is_if(line) or any(taken is False for taken, _ in self.branches):
                continue
            assigned = _ASSIGNMENT.fullmatch(line)
            words = _words(assigned[2]) if assigned else []
            if assigned and len(words) <= 1:
                self.known[assigned[1]] = self._filled("".join(words))
            elif _DOTTED.search(line) or not _RUNS.search(line):
                yield from self._arguments(line, options)

    def _arguments(self, line: str, options: Sequence[str]) -> Iterator[Override]:
        """What the words of a command set."""
        words = []
        for word in _words(line):
            # a variable that stands alone may hold several words
            value = self._filled(word) if _VARIABLE.fullmatch(word) else None
            words += _words(value) if value else [word]

        ours = any(_DOTTED.match(word) for word in words)
        called = begun = False
        for at, word in enumerate(words):
            called = called or word == "-m" or word.endswith(".py")
            key, equals, value = word.partition("=")
            if _ENDS.fullmatch(word):
                if begun:
                    return
            elif ours and _OVERRIDE.match(word) and (called or begun or _DOTTED.match(word)):
                begun = True
                yield Override(key.lstrip("+~"), self._filled(value))
            elif key in options and (ours or ".sh" in line):
                if not equals:
                    value = "".join(words[at + 1 : at + 2])
                yield Override(key, self._filled(value))

    def _filled(self, text: str) -> str | None:
        """The text with the script's own variables in it; None where one is unknown, or a command
        would have to run."""
        try:
            for _ in range(2):  # a default may be a variable
                text = _VARIABLE.sub(self._value, text)
        except KeyError:
            return None
        return None if "$" in text or "`" in text or len(text) > LONGEST else text

    def _value(self, match: re.Match[str]) -> str:
        """What a variable holds. KeyError where that is unknown."""
        name, default = match[1] or match[2], match[3]
        value = self.known.get(name, default)
        if value is None:
            raise KeyError(name)
        return value or default or ""

    def _is_if(self, line: str) -> bool:
        """Whether the line belongs to an `if`, which is followed where the script itself decides
        it."""
        word = line.partition(" ")[0].rstrip(";")
        if word == "if":
            taken = self._holds(line)
            self.branches.append((taken, taken))
        elif word in ("elif", "else") and self.branches:
            _, decided = self.branches.pop()
            if decided is False:  # no branch was taken: this one may be
                taken = True if word == "else" else self._holds(line)
                self.branches.append((taken, taken))
            else:
                self.branches.append((False if decided else None, decided))
        elif word == "fi" and self.branches:
            self.branches.pop()
        else:
            return False
        return True

    def _holds(self, line: str) -> bool | None:
        """Whether the test in a line holds; None where the script does not say."""
        match = _TEST.search(line)
        if match is None:
            return None
        left, right = [self._filled(" ".join(_words(side))) for side in (match[1], match[3])]
        if left is None or right is None:
            return None
        return (left == right) is (match[2] in ("==", "=", "-eq"))


def read(text: str, options: Sequence[str] = ()) -> tuple[list[Override], dict[str, str]]:
    """What the text sets, in its order, of a key that comes twice the last; and its own variables
    at its end. `options`: names of `--options` that count. InputError for a text of more than
    `MOST` characters."""
    rule = "a launch script is a short text"
    hold(len(text) <= MOST, rule, f"{len(text):,} characters", "give the script alone")
    shell = _Shell()
    last: dict[str, Override] = {}
    for override in shell.overrides(_lines(text), options):
        last.pop(override.key, None)
        last[override.key] = override
    known = {name: value for name, value in shell.known.items() if value is not None}
    return list(last.values()), known


def typed(words: Sequence[str]) -> list[Override]:
    """Overrides as they are typed behind a command: `key=value`, `--option value` or
    `--option=value`. InputError for a word that is none of these."""
    last = {}
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


def _lines(text: str) -> list[str]:
    """Lines without comments, continued ones joined; indents and blank lines left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    code = "\n".join(_COMMENT.sub("", line) for line in lines)
    joined = re.sub(r"\\[ \t]*\n", " ", code)
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _words(line: str) -> list[str]:
    """Words as bash splits them, without their quotes; where the quotes do not match, those between
    blanks."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
