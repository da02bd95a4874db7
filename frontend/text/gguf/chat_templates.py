"""Writes a GGUF file's chat templates as the files in which a model's folder has them: one, and others by name."""

import re
from collections.abc import Iterator
from pathlib import Path

from ....protocol.fields.rules import shown
from .metadata import Metadata, text

_KEY = "tokenizer.chat_template"
_FOLDER = "additional_chat_templates"
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")  # it becomes the name of a file
_MOST = 64
_MOST_CHARACTERS = 1 << 20  # published ones have some 30,000 at most


def write_chat_templates(metadata: Metadata, folder: Path) -> None:
    if default := _template(metadata, _KEY):
        (folder / "chat_template.jinja").write_text(default, encoding="utf-8")
    named = dict(_named(metadata))
    if len(named) > _MOST:
        raise ValueError(f"it has {len(named):,} chat templates, and at most {_MOST} are read")
    if named:
        (folder / _FOLDER).mkdir()
    for name, template in named.items():
        (folder / _FOLDER / f"{name}.jinja").write_text(template, encoding="utf-8")


def _named(metadata: Metadata) -> Iterator[tuple[str, str]]:
    for key in metadata:
        if not key.startswith(f"{_KEY}."):
            continue
        name = key.removeprefix(f"{_KEY}.")
        if not _NAME.fullmatch(name):
            raise ValueError(f"its chat template {shown(name)} has a name that is not of letters, digits and _")
        if template := _template(metadata, key):
            yield name, template


def _template(metadata: Metadata, key: str) -> str | None:
    found = text(metadata, key)
    if found is not None and len(found) > _MOST_CHARACTERS:
        raise ValueError(
            f"{shown(key)} has {len(found):,} characters, and no model's template has more than {_MOST_CHARACTERS:,}"
        )
    return found
