"""Code that a user brings is found by the name of an entry point; here is which groups there are, and which names.

Looks names up and imports nothing: the process that uses a plugin loads it.
"""

from collections.abc import Iterable
from importlib.metadata import entry_points

from .errors import ConfigError

LOGITS_PROCESSORS = "penstock.logits_processors"


def require_installed(option: str, group: str, names: Iterable[str]) -> None:
    """Raise where an installed package offers no entry point of that name."""
    known = sorted({entry.name for entry in entry_points(group=group)})
    for name in names:
        if name not in known:
            there = f"installed are {', '.join(known)}" if known else "none is installed"
            raise ConfigError(
                f"{option}: there is no entry point {name!r} in the group {group!r}; {there}. "
                "Install the package that declares it in its pyproject.toml."
            )
