"""An MCP server whose results are what real servers' are: resources, links, pictures, data without a text. It remembers."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

server = MCPServer("odd")
seen: list[str] = []


@server.tool()
def resource() -> CallToolResult:
    """A file, in the manner of a code host's server."""
    file = TextResourceContents(uri="repo://o/r/README.md", mime_type="text/plain", text="THE WHOLE FILE")
    told = TextContent(type="text", text="downloaded (SHA: abc)")
    return CallToolResult(content=[told, EmbeddedResource(type="resource", resource=file)])


@server.tool()
def link() -> CallToolResult:
    """Where a file is."""
    return CallToolResult(content=[ResourceLink(type="resource_link", uri="file:///a.txt", name="a.txt")])


@server.tool()
def picture() -> CallToolResult:
    """A picture alone."""
    return CallToolResult(content=[ImageContent(type="image", data="AAAA", mime_type="image/png")])


@server.tool()
def archive() -> CallToolResult:
    """A resource that is no text."""
    file = BlobResourceContents(uri="file:///a.zip", mime_type="application/zip", blob="AAAA")
    return CallToolResult(content=[EmbeddedResource(type="resource", resource=file)])


@server.tool()
def data() -> CallToolResult:
    """Data without a text."""
    return CallToolResult(content=[], structured_content={"capital": "Paris", "found": 1})


@server.tool()
def remember(text: str) -> str:
    """All that it was told."""
    seen.append(text)
    return ", ".join(seen)


if __name__ == "__main__":
    server.run("stdio")
