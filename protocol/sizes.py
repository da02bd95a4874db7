"""Bytes as a person reads them, in the largest unit of which there is one at least. Knows nothing of their use."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(number: float) -> str:
    """For tables: whole numbers, and from a GiB on a digit more."""
    value, unit = _in_unit(number)
    return f"{value:,.1f} {unit}" if unit in ("GiB", "TiB") else f"{value:.0f} {unit}"


def exact_size(number: float) -> str:
    """For sentences that hold two sizes against each other."""
    value, unit = _in_unit(number)
    return f"{value:,.2f}".rstrip("0").rstrip(".") + f" {unit}"


def _in_unit(number: float) -> tuple[float, str]:
    for unit in _UNITS[:-1]:
        if abs(number) < 1024:
            return number, unit
        number /= 1024
    return number, _UNITS[-1]
