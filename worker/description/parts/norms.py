"""The norms of a decoder's layers: how they are computed and stored, and where they stand. Imports no torch."""

from typing import NamedTuple


class NormForm(NamedTuple):
    """How a family's norms are computed, and how their weights are stored."""

    has_mean: bool = False  # LayerNorm: the mean is taken off first
    has_bias: bool = False
    is_stored_less_one: bool = False  # multiplied with 1 + what is stored


RMS = NormForm()


class NormPlaces(NamedTuple):
    """Where a layer has norms, by their names in the checkpoint; None: it has none there.

    A norm before a part is of the stream, one behind it of what the part adds to the stream.
    """

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    after_mlp: str | None = None
    is_parallel: bool = False  # the MLP reads what attention reads, and both are added at once


BEFORE = NormPlaces()
AFTER = NormPlaces(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
AROUND = NormPlaces(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)
# The norms before an MLP and before the experts beside it are theirs: `mixtures.NormsBeside`.
AROUND_BESIDE_EXPERTS = AROUND._replace(before_mlp=None)
AROUND_AS_GLM_NAMES_THEM = NormPlaces(
    "input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"
)
BEFORE_AS_VAULTGEMMA_NAMES_THEM = NormPlaces(before_mlp="pre_feedforward_layernorm")
PARALLEL = NormPlaces(before_mlp=None, is_parallel=True)
