"""Formats bytes for people, in the largest unit of which there is at least one."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(number: float) -> str:
    """Format for tables: whole numbers, with one decimal from a GiB on."""
    value, unit = _in_unit(number)
    return f"{value:,.1f} {unit}" if unit in ("GiB", "TiB") else f"{value:.0f} {unit}"


def exact_size(number: float) -> str:
    """Format for sentences that compare two sizes."""
    value, unit = _in_unit(number)
    return f"{value:,.2f}".rstrip("0").rstrip(".") + f" {unit}"


def _in_unit(number: float) -> tuple[float, str]:
    for unit in _UNITS[:-1]:
        if abs(number) < 1024:
            return number, unit
        number /= 1024
    return number, _UNITS[-1]
