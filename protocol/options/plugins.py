"""Finds plugins, a user's code behind an entry point: the groups of entry points, and the look-up of names.

No plugin is imported here: the process that uses it loads it.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..fields.suggestion import suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

LOGITS_PROCESSORS = "penstock.logits_processors"


def installed(group: str) -> "EntryPoints":
    """The entry points that installed packages offer in a group."""
    # Imported late: it pulls in much of `email` and `zipfile`, and few users have plugins.
    from importlib.metadata import entry_points

    return entry_points(group=group)


def require_installed(option: str, group: str, names: Collection[str]) -> None:
    """Raise unless installed packages offer entry points with these names."""
    if not names:
        return
    known = sorted(installed(group).names)
    for name in names:
        if name not in known:
            there = f"installed are {', '.join(known)}" if known else "none is installed"
            raise ConfigError(
                f"{option}: there is no entry point {name!r} in the group {group!r}; {there}.{suggestion(name, known)} "
                "Install the package that declares it in its pyproject.toml."
            )
