"""Rules for the servers of tools that a role names."""

import re

from ssp.base.errors import hold
from ssp.config.schema import Config
from ssp.config.toolserver import server_of

_VARIABLE = re.compile("[A-Z_][A-Z0-9_]*")
"""Names in capitals: a key itself has other letters too."""


def servers_are_reached(cfg: Config) -> None:
    """What is secret stands in the environment, and is told by its variable's name: settings are
    kept and shown. Each transport takes what it can use."""
    for role, block in {"defaults": cfg.defaults, **cfg.blocks}.items():
        for server in filter(None, map(server_of, block.tools)):
            where = f"{role}.tools, {server}"
            variables = {f"env[{number}]": name for number, name in enumerate(server.env)}
            for header, words in server.headers.items():
                variables[f"headers.{header}"] = words.rpartition(" ")[2]
            # What is written there may be the key itself, so that it is not told.
            wrong = [key for key, name in variables.items() if not _VARIABLE.fullmatch(name)]
            rule = "a key of a server of tools is told by an environment variable's name"
            step = "export it, and write headers: {Authorization: Bearer MY_KEY}, or env: [MY_KEY]"
            hold(not wrong, rule, f"{where}: {', '.join(wrong)}", step)

            unused = [*server.headers] if server.is_program else server.env
            rule = "a program gets env, and an address gets headers"
            hold(not unused, rule, f"{where}: {', '.join(unused)}", "leave them out")
            absent = {name for name in server.rename if server.only and name not in server.only}
            rule = "rename is of tools that are offered"
            hold(not absent, rule, f"{where}: {', '.join(sorted(absent))}", "add them to only")
