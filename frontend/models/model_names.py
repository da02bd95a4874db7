"""Parses a model's name: a bundled name, a folder, or the id of one on the hub, with or without a revision."""

import os
import re
from pathlib import Path
from typing import NamedTuple

# Models that come with the package: name → folder.
BUNDLED = {"pocket": Path(__file__).parents[1] / "pocket"}

_HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@([\w./+-]+))?")


class HubName(NamedTuple):
    """A model on the hub, at a branch, tag or commit of it."""

    id: str
    revision: str | None = None

    @property
    def asked_revision(self) -> str:
        return self.revision or "main"

    def __str__(self) -> str:
        return self.id if self.revision is None else f"{self.id} at revision {self.revision}"


def hub_name(name: str, revision: str | None = None) -> HubName | None:
    """`OWNER/NAME` or `OWNER/NAME@REVISION`; None where it can be none. A `revision` goes before what the name says."""
    found = _HUB_NAME.fullmatch(name)
    return HubName(found[1], revision or found[2]) if found else None


def name_of(model: str) -> str:
    """What a model is called where nobody gave it a name: of a path the last part, since the rest says where things lie
    on this machine."""
    is_path = model not in BUNDLED and (hub_name(model) is None or Path(model).is_dir())
    return Path(os.path.expanduser(model)).absolute().name or "model" if is_path else model
