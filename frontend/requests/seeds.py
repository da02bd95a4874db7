"""Seeds for requests without one: counted, so that a run repeats."""

_SPAN = 2**63


def counted_seed(seed: int, number: int) -> int:
    """The seed of the n-th request without one of its own, from 0."""
    return (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9) % _SPAN
