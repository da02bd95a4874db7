"""What a request may say of how one of its media is read, such as `max_pixels`; and what numbers are meant by it."""

from collections.abc import Mapping
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion

OPTIONS = ("min_pixels", "max_pixels", "fps", "num_frames", "min_frames", "max_frames", "sample_fps")
RATES = (0.001, 1000.0)  # frames a second that can be meant; positions in time are made of them
_OTHER_NAMES = {"nframes": "num_frames", "raw_fps": "sample_fps"}
_LOW_DETAIL_PIXELS = 512 * 512


def option_name(name: Any) -> str | None:
    name = _OTHER_NAMES.get(name, name)
    return name if name in OPTIONS else None


def checked_options(given: Mapping[str, Any]) -> dict[str, float]:
    """How a medium is to be read, by the names in `OPTIONS`; unknown names are refused."""
    options: dict[str, float] = {}
    for given_name, value in given.items():
        if given_name in ("type", "detail", "format", "text", "cache_control", "uuid") or value is None:
            if given_name == "detail":
                _check_detail(value, options)
            continue
        name = option_name(given_name)
        if name is None:
            raise RequestError(
                f"A medium has no option {shown(given_name)}; it may have {', '.join(OPTIONS)}."
                f"{suggestion(str(given_name), OPTIONS)}"
            )
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name.endswith("fps"):
            if not is_number or not RATES[0] <= value <= RATES[1]:
                raise RequestError(f"{given_name} must be frames a second, from {RATES[0]:g} to {RATES[1]:g}.")
            options[name] = float(value)
            continue
        if not is_number or not 0 < value < 2**31 or value % 1:
            raise RequestError(f"{given_name} must be a whole number above 0.")
        options[name] = int(value)
    return options


def _check_detail(detail: Any, options: dict[str, float]) -> None:
    if detail not in (None, "auto", "low", "high"):
        raise RequestError(f"detail is 'auto', 'low' or 'high', not {shown(detail)}.")
    if detail == "low":
        options.setdefault("max_pixels", _LOW_DETAIL_PIXELS)
