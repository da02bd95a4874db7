"""How a config describes latent attention (MLA): of each token one small vector is kept, for the keys and values of all
heads. Reads no weights and imports no torch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ..origin import Origin
from .rope import RopeConfig


@dataclass(frozen=True)
class LatentConfig:
    """The sizes of one family's latent attention. Of a head's query, `nope_dim` numbers meet the latent and `rope_dim`
    the key that all heads share, which is rotated by its position."""

    query_rank: int | None  # the query comes through so many numbers; None: straight from the stream
    rank: int  # numbers of a latent
    nope_dim: int
    rope_dim: int
    value_dim: int  # of a head's value
    rotates_pairs: bool  # neighbours rotate against one another, not halves

    @property
    def query_dim(self) -> int:
        """Of a head's query."""
        return self.nope_dim + self.rope_dim

    @property
    def width(self) -> int:
        """Numbers that are kept of a token."""
        return self.rank + self.rope_dim


def read_latent(config: dict[str, Any], count: Callable[[str], int], origin: Origin) -> LatentConfig:
    """`count` reads a positive whole number of the config."""
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
    """What scores are multiplied by; stretched positions may ask for a larger one."""
    scale = latent.query_dim**-0.5
    if rope is None or rope.kind == "default":
        return scale
    weight = rope.figures.get("mscale_all_dim")
    if weight and rope.factor > 1:
        scale *= (0.1 * weight * math.log(rope.factor) + 1) ** 2
    return scale
