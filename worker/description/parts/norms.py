"""The norms of a decoder's layers: their formulas, stored form and positions. Imports no torch."""

from typing import NamedTuple


class NormForm(NamedTuple):
    """How a family's norms are computed, and how their weights are stored."""

    has_mean: bool = False  # LayerNorm: the mean is subtracted first
    has_bias: bool = False
    is_stored_less_one: bool = False  # the factor is 1 + the stored weight


RMS = NormForm()


class NormPlaces(NamedTuple):
    """The checkpoint's names of a layer's norms by position; None: no norm there.

    A norm before a part reads the stream; one after it normalizes what the part adds to the stream.
    """

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    after_mlp: str | None = None
    is_parallel: bool = False  # the MLP reads what attention reads, and both are added at once
    is_behind: bool = False  # a norm after a part is that of the stream with what the part adds
    skips_first: bool = False  # the first layer has no norm before attention: the embedding has one


BEFORE = NormPlaces()
AFTER = NormPlaces(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
AROUND = NormPlaces(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)
# `mixtures.NormsBeside` has the norms before an MLP and before the experts next to it.
AROUND_BESIDE_EXPERTS = AROUND._replace(before_mlp=None)
AROUND_AS_GLM_NAMES_THEM = NormPlaces(
    "input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"
)
BEFORE_AS_VAULTGEMMA_NAMES_THEM = NormPlaces(before_mlp="pre_feedforward_layernorm")
PARALLEL = NormPlaces(before_mlp=None, is_parallel=True)
