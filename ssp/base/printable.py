"""Text from outside, made fit for a terminal, and the door for plain lines."""

import os
import re
import sys
from typing import TextIO

_HARMFUL = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Control characters but newline and tab, line separators, marks that turn the direction,
surrogates without a partner."""


def printable(text: str) -> str:
    r"""`text` with every character that a terminal would obey written as its escape, e.g. `\x1b`.
    Newline and tab stay. The result can be encoded, and a second call changes nothing."""

    def escape(match: re.Match[str]) -> str:
        return match[0].encode("unicode_escape").decode("ascii")

    return _HARMFUL.sub(escape, text)


def masked(text: str) -> str:
    """`text` of somebody else's error without the values of environment variables that are named as
    secrets are."""
    secrets = []
    for name, value in os.environ.items():
        if len(value) > 7 and re.search("KEY|TOKEN|SECRET|PASSWORD", name.upper()):
            secrets.append(value)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def say(text: object, file: TextIO | None = None) -> None:
    """Print one or more plain lines at once (`file` None: stdout). What is drawn goes through
    `ssp.telemetry.terminal`."""
    print(printable(str(text)), file=file or sys.stdout, flush=True)
