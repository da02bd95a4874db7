"""A client of the daemon: everything of a `Session`, for a model whose process tree belongs to the daemon."""

from .choice import attach

__all__ = ["attach"]
