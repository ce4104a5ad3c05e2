"""What a tool returns, as the documents that a policy reads: cut, and cleaned."""

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
"""Characters that are looked at of a result; `limits.observation_tokens` says what is shown of
them."""


MOST = 64
"""Documents that are looked at of a result."""


def shown_of(result: Any, name: str) -> list[Document]:
    """A tool's result as documents. Fault for what is no text and no data."""
    try:
        result = [result] if isinstance(result, Document) else result
        if isinstance(result, list) and result and all(isinstance(one, Document) for one in result):
            return [
                replace(d, id=printable(d.id), contents=printable(d.contents[:LONGEST]))
                for d in result[:MOST]
            ]
        text = result if isinstance(result, str) else "" if result is None else _json(result)
    except Exception as error:  # bytes, a list in itself
        raise Fault("tool_result", f"{name}: {type(result).__name__}: {error}") from error
    return [ToolResult(f"tool:{name}", printable(text[:LONGEST]))] if text.strip() else []


def _json(result: Any) -> str:
    return json.dumps(result, ensure_ascii=False, default=_data)


def _data(value: Any) -> Any:
    """What JSON does not know, as what it knows: dataclasses, pydantic's models, numbers of other
    libraries."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real | Decimal):
        return float(value)
    if isinstance(value, BaseModel) or is_dataclass(value):
        return to_jsonable_python(value)
    raise TypeError(f"{type(value).__name__} is no data")
