"""Reads a config's latent attention (MLA), which keeps one small vector per token for the keys and values of all heads.
Reads no weights and imports no torch.
"""

import math
from collections.abc import Callable
from typing import Any

from ....kernels.elementary import logarithm
from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....records import dataclass
from ..origin import Origin
from .rope import RopeConfig


@dataclass(frozen=True)
class LatentConfig:
    """The sizes of latent attention. `nope_dim` elements of a head's query are multiplied by the latent, `rope_dim` by
    the rotated key that all heads share."""

    query_rank: int | None  # inner width of the query's projection; None: it has a single one
    rank: int  # elements of a latent
    nope_dim: int
    rope_dim: int
    value_dim: int  # elements of a head's value
    rotates_pairs: bool  # rotary embeddings pair neighbouring elements instead of halves

    @property
    def query_dim(self) -> int:
        """Elements of a head's query."""
        return self.nope_dim + self.rope_dim

    @property
    def width(self) -> int:
        """Elements that are kept per token."""
        return self.rank + self.rope_dim


def read_latent(config: dict[str, Any], count: Callable[[str], int], origin: Origin) -> LatentConfig:
    """Read the sizes; `count` reads a positive whole number from the config."""
    is_interleaved = config.get("rope_interleave", True)
    if type(is_interleaved) is not bool:
        raise ConfigError(f"{origin}: rope_interleave must be true or false, and is {shown(is_interleaved)}.")
    heads, key_heads = count("num_attention_heads"), config.get("num_key_value_heads")
    if key_heads not in (None, heads):
        raise ConfigError(
            f"{origin}: num_key_value_heads is {shown(key_heads)}; with latent attention each of the {heads} attention "
            "heads has a key of its own, and no other number is supported."
        )
    return LatentConfig(
        query_rank=None if config.get("q_lora_rank") is None else count("q_lora_rank"),
        rank=count("kv_lora_rank"),
        nope_dim=count("qk_nope_head_dim"),
        rope_dim=count("qk_rope_head_dim"),
        value_dim=count("v_head_dim"),
        rotates_pairs=is_interleaved,
    )


def latent_scale(latent: LatentConfig, rope: RopeConfig | None) -> float:
    """The factor of attention scores; stretched positions may need a larger one."""
    scale = 1 / math.sqrt(latent.query_dim)
    if rope is None or rope.kind == "default":
        return scale
    weight = rope.figures.get("mscale_all_dim")
    if weight and rope.factor > 1:
        magnitude = 0.1 * weight * logarithm(rope.factor) + 1
        scale *= magnitude * magnitude
    return scale
