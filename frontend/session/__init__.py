"""A model opened for use, in a process tree of its own or attached to the daemon's.

`open_model` chooses between them. Begin with `session.py`, then `private.py`; `tree/` has the processes and the
transport to them, `attached/` the transport to the daemon.
"""

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.processes.descriptors import said_in_words
from ..console.standard_error import fill_closed_descriptors

if TYPE_CHECKING:
    from ..replay.finder import AnswerFinder
    from .session import Session


def open_model(model: str | os.PathLike[str], options: dict[str, Any]) -> "Session[Any]":
    """The daemon's model, if `connect` allows it and the daemon has that model; otherwise one in a tree of its own.

    A private tree is still starting then; `wait_until_ready` waits for it. Only the chosen kind is imported: an
    attached script needs no tokenizer, no template engine and no ZeroMQ, and answers that much sooner.
    """
    fill_closed_descriptors()
    with said_in_words(f"{model!s} could not be opened"):
        session = _opened(model, options)
        speculation = session.config.speculative_config
        if speculation is not None and speculation.method == "replay" and speculation.file is not None:
            session.open_replay = partial(_opened_replay, speculation.file)
        return session


def _opened_replay(file: str) -> "AnswerFinder":
    from ..replay.finder import AnswerFinder

    return AnswerFinder(file)


def _opened(model: str | os.PathLike[str], options: dict[str, Any]) -> "Session[Any]":
    if options.get("connect", "never") not in (None, "never"):
        from .attached import attach

        if (attached := attach(model, options)) is not None:
            return attached
    from ...protocol.options.config import EngineConfig
    from .tree.tree import Tree

    config = EngineConfig.from_options(model, **options)
    tree = Tree(config) if config.data_parallel_size == 1 else None  # several are started by their transport
    try:
        from .private import PrivateSession  # while the tree's processes import what they need

        return PrivateSession.open(model, options, tree)
    except BaseException:
        if tree is not None:
            tree.close()
        raise
