"""Configures huggingface_hub for this process: where its cache lies, and how it downloads."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ....protocol.files.cache_folder import caches_of_libraries

# The library writes ten megabytes at a time, and what came of a piece is lost with the connection.
_PIECE_BYTES = 256 << 10
_BARS = "huggingface_hub.http_get"


def prepare_hub() -> None:
    """Before huggingface_hub is imported, which looks once where its cache is: not in a home that isn't this user's."""
    os.environ.update(caches_of_libraries())


def most_bytes_over_http() -> float:
    """What the hub gives of one file in the usual way; larger ones come through Xet alone, which the library speaks."""
    from huggingface_hub import constants

    return getattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", math.inf)


@contextmanager
def quiet_small_pieces() -> Iterator[None]:
    """While files are fetched: the library writes what comes at once, and shows no bars beside ours."""
    from huggingface_hub import constants
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    constants.DOWNLOAD_CHUNK_SIZE = min(constants.DOWNLOAD_CHUNK_SIZE, _PIECE_BYTES)
    if are_progress_bars_disabled(_BARS):
        yield
        return
    disable_progress_bars(_BARS)
    try:
        yield
    finally:
        enable_progress_bars(_BARS)
