"""Lists model features that the kernels on a GPU don't support yet. Imports neither torch nor triton."""

from ...description.config import ModelConfig
from ...description.groups import groups_of


def missing_kernels(config: ModelConfig) -> str:
    """The first unsupported feature that this model needs, as the end of a sentence; empty if there is none."""
    if config.latent is not None:
        return "keeps latents instead of keys and values (MLA)"
    attention = [group for group in groups_of(config, 1, gives_back=False) if group.state is None]
    if len(attention) > 1:
        return f"has {len(attention)} kinds of heads in its layers"
    if config.scales.score_cap is not None:
        return "caps the scores of attention (soft cap)"
    if config.qk_norm is not None and config.family.norm.has_mean:
        return "takes the mean off queries and keys (LayerNorm by head)"
    if config.family.norms_values:
        return "norms values"
    if config.family.norms_after_rotation:
        return "norms queries and keys behind their rotation"
    return ""
