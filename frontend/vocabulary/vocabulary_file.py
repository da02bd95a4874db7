"""What a vocabulary file holds, within bounds that no real one comes near."""

from pathlib import Path

_MOST_BYTES = 1 << 28
LONGEST_PIECE = 1024  # characters, or bytes


def content_of(path: Path) -> bytes:
    """Raises ValueError for a file that is too large to be a vocabulary."""
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, and no vocabulary more than {_MOST_BYTES:,}")
    return path.read_bytes()


def check_length(piece: str | bytes, name: str) -> None:
    if len(piece) > LONGEST_PIECE:
        raise ValueError(f"{name} has the length {len(piece):,}, and none is longer than {LONGEST_PIECE:,}")
