"""What computes a model: torch's operations anywhere, native kernels on a CPU, Triton's on a GPU; a room for each.

Chosen once, when a model loads; with it go the number formats that it multiplies and keeps. Knows nothing of layers.
"""

from .backend import Backend
from .choice import chosen_backend

__all__ = ["Backend", "chosen_backend"]
