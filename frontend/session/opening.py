"""Opens a model: the daemon's, where `connect` says so and it has that model, else in a tree of its own.

Only what was chosen is imported: an attached script needs no tokenizer, no template engine and no ZeroMQ, and answers
that much sooner.
"""

import os
from typing import Any

from ...protocol.processes.descriptors import said_in_words
from ..console.standard_error import fill_closed_descriptors
from .session import Session


def open_model(model: str | os.PathLike[str], options: dict[str, Any]) -> Session[Any]:
    """Open a model. A private tree goes on starting; `wait_until_ready` waits for it."""
    fill_closed_descriptors()
    with said_in_words(f"{model!s} could not be opened"):
        if options.get("connect", "never") not in (None, "never"):
            from .attached import attach

            if (attached := attach(model, options)) is not None:
                return attached
        from .private import PrivateSession

        return PrivateSession.started(model, options)
