"""Ray's token on this node: who is in the cluster may run code there, so several nodes share
one."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from ssp.base.errors import InputError, hold

MODE, VALUE, PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def require() -> None:
    """Switch Ray's token mode on for this process and what it starts. InputError when the
    environment says otherwise."""
    os.environ[MODE] = os.environ.get(MODE) or "token"
    found = f"{MODE}={os.environ[MODE]}"
    hold(
        os.environ[MODE] == "token",
        "several nodes form a cluster in Ray's token mode",
        found,
        f"unset {MODE}",
    )


def path() -> Path:
    """The token's file, there or not."""
    return Path(os.environ.get(PATH) or "~/.ray/auth_token").expanduser()


def read() -> str:
    """The token, empty when there is none."""
    return os.environ.get(VALUE, "") or (path().read_text().strip() if path().is_file() else "")


def make() -> str:
    """The token; a new one, readable by its owner only, where there is none."""
    if found := read():
        return found
    path().parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)  # an empty file that was there may be open to others
        file.write(secrets.token_hex(32))
    return read()


def differs(head: str, found: str) -> InputError:
    """What to copy, and where: `found` says what this node has."""
    next_step = (
        f"copy the head's token file, whose path rank 0 prints: scp {head}:.ray/auth_token"
        f" {path()}; or set {PATH} on every node to one file that all of them see"
    )
    return InputError("every node has the head's token", found, next_step)


def proof(token: str, who: str, nonce: str) -> str:
    """What only a holder of the token can answer to `nonce`."""
    return hmac.new(token.encode(), f"ssp:{who}:{nonce}".encode(), hashlib.sha256).hexdigest()
