"""A client of the daemon: the whole surface of a model whose process tree belongs to someone else."""

from .choice import attach

__all__ = ["attach"]
