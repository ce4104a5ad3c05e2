"""Makes the documents that a policy reads of what a tool returns: cut, and cleaned."""

import json
import numbers
from dataclasses import is_dataclass, replace
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ssp.base.episode import Document, ToolResult
from ssp.base.errors import Fault
from ssp.base.printable import printable

LONGEST = 200_000
"""Characters of a result that are used; `limits.observation_tokens` says how many are shown."""

MOST = 64
"""Documents of a result that are used."""


def shown_of(result: Any, name: str) -> list[Document]:
    """A tool's result as documents. Fault for what is no text and no data."""
    try:
        if isinstance(result, Document):
            result = [result]
        if isinstance(result, list) and result and all(isinstance(one, Document) for one in result):
            documents = []
            for document in result[:MOST]:
                contents = printable(document.contents[:LONGEST])
                cleaned = replace(document, id=printable(document.id), contents=contents)
                documents.append(cleaned)
            return documents
        text = "" if result is None else result
        if not isinstance(text, str):
            text = json.dumps(result, ensure_ascii=False, default=_data)
    except Exception as error:  # bytes, a list in itself
        raise Fault("tool_result", f"{name}: {type(result).__name__}: {error}") from error
    return [ToolResult(f"tool:{name}", printable(text[:LONGEST]))] if text.strip() else []


def _data(value: Any) -> Any:
    """JSON data for a value that JSON does not know: a dataclass, a model of pydantic, a number of
    another library."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real | Decimal):
        return float(value)
    if isinstance(value, BaseModel) or is_dataclass(value):
        return to_jsonable_python(value)
    raise TypeError(f"{type(value).__name__} is no data")
