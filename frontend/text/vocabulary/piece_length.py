"""How long a piece of a vocabulary may be: a bound that no real one comes near."""

LONGEST_PIECE = 1024  # characters, or bytes


def check_length(piece: str | bytes, name: str) -> None:
    if len(piece) > LONGEST_PIECE:
        raise ValueError(f"{name} has the length {len(piece):,}, and none is longer than {LONGEST_PIECE:,}")
