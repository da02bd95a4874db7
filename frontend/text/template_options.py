"""Finds the options that a chat template doesn't read, without running it."""

import difflib
from collections.abc import Mapping
from functools import lru_cache

from jinja2 import nodes

from ...protocol.errors import RequestError
from .chat import parsed_template

_SLIP = 0.85  # how alike a misspelt option and the intended one must be


def unread_options(template: str, options: Mapping[str, object]) -> list[str]:
    """The options that a template doesn't read; raises `RequestError` for a likely misspelling."""
    read = _names_read(template) | {"documents", "continue_final_message"}
    unread = [name for name in options if name not in read]
    meant = (read | {"chat_template", "tools", "add_generation_prompt"}) - options.keys()
    for name in unread:
        if near := difflib.get_close_matches(str(name), meant, n=1, cutoff=_SLIP):
            raise RequestError(f"The chat template reads no {name!r}. Did you mean {near[0]}?")
    return unread


@lru_cache(maxsize=64)
def _names_read(template: str) -> frozenset[str]:
    return frozenset(name.name for name in parsed_template(template).find_all(nodes.Name) if name.ctx == "load")
