"""Shapes by their names on the command line: Qwen3's, and published ones of other families, some with fewer layers."""

from ..models import SHAPES, config_of
from .mixtures import MIXTURES
from .shape import Shape
from .windows_and_states import GROUPED

PUBLISHED = MIXTURES | GROUPED
_OWN = {"dtype": "bfloat16", "max_position_embeddings": 8192}
QWEN3 = {
    name: Shape(
        f"Qwen3-{name}", shape["num_hidden_layers"], config_of(shape) | _OWN, "qwen3",
        norms=("attn_q_norm", "attn_k_norm", shape["head_dim"], shape["head_dim"]),
    )
    for name, shape in SHAPES.items()
}  # fmt: skip
EVERY = QWEN3 | PUBLISHED
