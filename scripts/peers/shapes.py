"""All shapes that `bench_shapes.py` compares, by their names on its command line."""

from .mixtures import MIXTURES
from .windows_and_states import GROUPED

SHAPES = MIXTURES | GROUPED
