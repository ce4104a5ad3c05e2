"""Says in words what a JSON schema asks for, for policies whose chat template shows no tools."""

import json
from typing import Any

MOST = 200
"""Parts of a tool's schema that are told: others write schemas, and these may name themselves."""


def arguments(schema: dict[str, Any]) -> list[str]:
    """A line for each argument: its name, its type, whether it is required or its default, and what
    is said of it."""
    required = schema.get("required", [])
    words = _Words(schema)
    lines = []
    for name, part in schema.get("properties", {}).items():
        told = part if isinstance(part, dict) else {}
        line = f"- {name}: {words.kind(part)}"
        if name in required:
            line += ", required"
        elif "default" in told:
            line += f", default {_json(told['default'])}"
        about = " ".join(str(told.get("description", "")).split())
        lines.append(f"{line}. {about}" if about else line)
    return lines


class _Words:
    """The types of one schema, in words."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._left = MOST

    def kind(self, part: Any) -> str:
        """The type of what `part` asks for."""
        self._left -= 1
        if not isinstance(part, dict) or self._left < 0:
            return "any value"
        if "$ref" in part:
            return self.kind(self._named(part["$ref"]))
        if "enum" in part:
            return f"one of {', '.join(map(_json, part['enum']))}"
        if "const" in part:
            return _json(part["const"])
        for several in ("anyOf", "oneOf", "allOf"):
            if part.get(several):
                joint = " and " if several == "allOf" else " or "
                return joint.join(dict.fromkeys(map(self.kind, part[several])))
        kind = part.get("type", "any value")
        if isinstance(kind, list):
            return " or ".join(self.kind({**part, "type": one}) for one in kind)
        if kind == "array":
            return f"list of {self.kind(part.get('items'))}"
        if kind == "object" and part.get("properties"):
            return self._object(part)
        if kind == "object" and isinstance(part.get("additionalProperties"), dict):
            return f"object of {self.kind(part['additionalProperties'])}"
        return str(kind)

    def _object(self, part: dict[str, Any]) -> str:
        """An object by its parts; those that may be left out have a question mark."""
        required = part.get("required", [])
        inner = []
        for name, below in part["properties"].items():
            mark = "" if name in required else "?"
            inner.append(f"{name}{mark}: {self.kind(below)}")
        return f"{{{', '.join(inner)}}}"

    def _named(self, place: Any) -> Any:
        """The part of the schema at a place in itself; None elsewhere."""
        part: Any = self._schema
        for step in str(place).removeprefix("#/").split("/"):
            part = part.get(step) if isinstance(part, dict) else None
        return part


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
