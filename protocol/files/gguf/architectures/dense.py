"""Facts of dense families that need more than a key; `protocol/files/gguf/architectures/gemma.py` has Gemma's."""

from ..refusals import UNSUPPORTED, MalformedError
from .facts import FULL, SLIDING
from .model_metadata import Config, ModelMetadata
from .rope import rope, yarn, yarn_betas


def ministral_rope(given: ModelMetadata) -> Config:
    """Queries are scaled by their position."""
    weight = given.number("rope.scaling.yarn_log_multiplier", 0.0)
    own = {
        **yarn(given),
        **yarn_betas(given),
        "rope_theta": given.number("rope.freq_base"),
        "mscale": weight,
        "mscale_all_dim": weight,
        "llama_4_scaling_beta": given.number("attention.temperature_scale"),
    }
    return {"rope_scaling": None, "rope_parameters": own}


def olmo3_rope(given: ModelMetadata) -> Config:
    """Only layers without a window stretch their positions."""
    figures = rope(given, given.head_dim)
    theta, scaling = figures["rope_theta"], figures["rope_scaling"] or {"rope_type": "default"}
    in_windows = {"rope_type": "default", "rope_theta": given.number("rope.freq_base_swa", theta)}
    return {"rope_parameters": {FULL: scaling | {"rope_theta": theta}, SLIDING: in_windows}, "rope_scaling": None}


def granite_scores(given: ModelMetadata) -> Config:
    if not given.flag("rope.scaling.finetuned", True):
        raise MalformedError("is a Granite whose layers don't rotate, which doesn't run as GGUF", UNSUPPORTED)
    return {"attention_multiplier": given.number("attention.scale", 0.0) or given.head_dim**-0.5}


def minicpm_factors(given: ModelMetadata) -> Config:
    """Factors for files that predate the keys: those of the models of that time."""
    layers, hidden = given.num_layers, given.count("embedding_length")
    update = given.number("residual_scale", 1.4 / layers**0.5)
    logits = given.number("logit_scale", hidden / 256)
    return {"scale_depth": _rounded(update * layers**0.5), "dim_model_base": _rounded(hidden / logits)}


def _rounded(value: float) -> float:
    """Undo the rounding of a factor to float32."""
    return float(f"{value:.6g}")
