"""Where Penstock keeps what it can make again: converted tokenizers, packed weights.

Knows nothing of what lies there.
"""

import os
from pathlib import Path


def cache_folder() -> Path:
    chosen = os.environ.get("PENSTOCK_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "penstock"
