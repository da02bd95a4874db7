"""Real schemas with instances, from the folder that PENSTOCK_REAL_SCHEMAS names.

Each file is as MaskBench has them: `{"schema": …, "tests":
[{"data": …, "valid": …}]}`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "PENSTOCK_REAL_SCHEMAS"


def folder() -> Path | None:
    found = os.environ.get(VARIABLE)
    return Path(found) if found else None


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder().glob("*.json")):
        yield path.stem, json.loads(path.read_text(encoding="utf-8"))
