"""A module that a test file names and only some of its tests need: it is imported when something of it is first used.

Each process that shares the tests collects all files, and the package of one client takes a second of its processor
time. Annotations name such a module in quotes.
"""

import importlib
from typing import Any


class Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks at everything in a file for marks of its own
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
