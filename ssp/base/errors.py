"""What can go wrong, typed at the place that knows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

LONGEST = 1500
"""Characters of each part of a message: what was found may be a whole file."""


class SspError(Exception):
    """Base of every error that this project raises on purpose."""

    exit_code = 1


class InputError(SspError):
    """Bad input from outside: config, file, checkpoint, port. Ends a command with exit code 2 and
    one clear paragraph. `rule` is what must hold, `found` the offending value (never a secret), and
    `next_step` what to type or change."""

    exit_code = 2

    def __init__(self, rule: str, found: object, next_step: str) -> None:
        self.rule, self.found, self.next_step = rule, found, next_step
        super().__init__(rule, found, next_step)

    def __str__(self) -> str:
        return f"{_short(self.rule)}. Found: {_short(self.found)}. Next: {_short(self.next_step)}."


def hold(holds: object, rule: str, value: object, step: str) -> None:
    """InputError with the offending `value`, unless it `holds`: a condition, or what must not be
    empty."""
    if not holds:
        raise InputError(rule, value, step)


Errors = type[Exception] | tuple[type[Exception], ...]


@contextmanager
def holding(errors: Errors, rule: str, value: object, step: str) -> Iterator[None]:
    """Around what raises one of `errors` where `rule` does not hold: it becomes an InputError. That
    tells the offending `value` and the error's words, or, where `value` is a function, what this
    makes of the error."""
    try:
        yield
    except errors as error:
        told = value(error) if callable(value) else f"{value}: {error}"
        raise InputError(rule, told, step) from error


class Refusals(InputError):
    """Several `InputError`s of one input, told together; `each` in order."""

    def __init__(self, each: Sequence[InputError]) -> None:
        self.each = tuple(each)
        rules = "; ".join(error.rule for error in each)
        values = "; ".join(str(error.found) for error in each)
        steps = "; ".join(error.next_step for error in each)
        super().__init__(rules, values, steps)

    def __str__(self) -> str:
        lines = [f"{number}. {error}" for number, error in enumerate(self.each, 1)]
        return "\n".join([f"{len(lines)} things are refused, each with what to do:", *lines])


def refuse(errors: Sequence[InputError]) -> None:
    """Raise the error, or several together; return where there is none."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise Refusals(errors)


class Fault(SspError):
    """A failure that is ours, not the policy's: it makes the episodes that it hit void (law 2).
    `cause` is one snake_case word that is counted in `void/<cause>`, e.g. `retriever_down`,
    `engine_died`, `deadline`."""

    def __init__(self, cause: str, detail: str = "") -> None:
        self.cause, self.detail = cause, detail
        super().__init__(cause, detail)

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}" if self.detail else self.cause


class InvariantError(SspError):
    """A law of the design does not hold: a bug, never retried."""


class VoidLimit(SspError):
    """Too many void outcomes for too long (law 2): the run saves, prints its causes and ends with
    exit code 1."""


class TooFewGroups(SspError):
    """A round found too few groups of episodes that teach something: the run saves, says so and
    ends with exit code 1."""


class OutOfMemory(SspError):
    """A micro-batch of an update does not fit into memory."""


def _short(part: object) -> str:
    text = str(part)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"
