"""A server of tools among a role's `tools`: one that needs more said than its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ssp.base.services import SEALED, sealed
from ssp.config.fields import Seconds

MCP = "mcp:"
"""Before the place of a server that stands in `tools` as a text."""


@dataclass
class ToolServerConfig:
    """An MCP server in a role's `tools` (docs/agents.md).

    `mcp`: stdio:COMMAND, or its address. `only`: those of its tools that are offered ([] = all).
    `rename`: its name of a tool → the policy's. `prefix`: stands before the policy's names of all
    others. `headers`: of requests; the last word of each is the name of an environment variable,
    whose value is sent: {Authorization: Bearer MY_KEY}. `env`: names of environment variables that
    the program gets. `seconds`: deadline of a call. `session`: episode: a connection for each
    episode, or a program; player: one for all that a player plays. `errors`: what the server calls
    an error is the policy's mistake, of which it is told, or a fault, which voids the episode."""

    mcp: str = ""
    only: list[str] = field(default_factory=list)
    rename: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    env: list[str] = field(default_factory=list)
    seconds: Seconds = 30.0
    session: Literal["episode", "player"] = "episode"
    errors: Literal["mistake", "fault"] = "mistake"

    def __hash__(self) -> int:
        """Of its place: equal settings have equal places."""
        return hash(self.mcp)

    def __str__(self) -> str:
        """Its place, as it is written in a list of texts."""
        if sealed(self.mcp):
            return f"{SEALED}{MCP}{self.mcp.removeprefix(SEALED)}"
        return f"{MCP}{self.mcp}"

    @property
    def is_program(self) -> bool:
        """Whether it is a program on this machine."""
        return self.mcp.removeprefix(SEALED).startswith("stdio:")

    @property
    def command(self) -> str:
        """What starts that program."""
        return self.mcp.removeprefix("stdio:")


def server_of(tool: str | ToolServerConfig) -> ToolServerConfig | None:
    """The server that an element of `tools` names, None where it names another tool."""
    if isinstance(tool, ToolServerConfig):
        return tool
    return ToolServerConfig(tool.removeprefix(MCP)) if tool.startswith(MCP) else None
