"""What was trained, for use: a policy with its search at an OpenAI-compatible endpoint (`chat.py`), and
as the tool `answer` of an MCP server (Model Context Protocol)."""
