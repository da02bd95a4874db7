"""`PlainOutput`: outputs as plain dicts and as JSON, for files, logs and other programs.

A dict holds what reading the JSON would give back: keys are strings (token ids, too), and infinities, which JSON can't
express, are -9999, as OpenAI's servers write them.
"""

import dataclasses
import json
import math
from typing import Any

_LEAST, _MOST = -9999.0, 9999.0


class PlainOutput:
    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Every field under its own name, down to numbers, texts, lists and dicts."""
        plain: dict[str, Any] = _plain(self)
        return plain

    def to_json(self, indent: int | None = None) -> str:
        """The same as JSON; one line unless `indent` says otherwise."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)
        # Half a surrogate pair, which a refused prompt may contain, becomes JSON's escape for it.
        return text.encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return _finite(value)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # numpy's and torch's
        return _plain(value.tolist())
    return [_plain(item) for item in value]


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else min(max(value, _LEAST), _MOST) if math.isinf(value) else value
