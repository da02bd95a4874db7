"""Refuses models that llama.cpp would compute differently from their config."""

import math
from collections.abc import Iterator

from ....protocol.errors import ConfigError
from ....protocol.files.gguf.architectures.architecture import Architecture, Family
from ....protocol.files.gguf.architectures.gemma import ScoreScale
from ....protocol.files.gguf.architectures.mixtures import ErnieLayers
from ....protocol.files.gguf.architectures.numbers import POOLINGS
from ....protocol.files.gguf.architectures.table import WRITTEN
from ....protocol.pooling.form import PoolingForm
from ...description.config import ModelConfig
from ...description.parts.activations import read_activation
from ...description.parts.rope import RopeConfig

_POOLINGS = ", ".join(POOLINGS.values())
_KINDS_OF_ROPE = {"default", "linear", "yarn", "llama3", "longrope"}


def inexpressible(why: str) -> ConfigError:
    return ConfigError(
        f"The model can't be written as GGUF: {why}. Without .gguf at the end of its name OUT becomes a folder, which "
        "can have this."
    )


def pooling_type(form: PoolingForm) -> int:
    """llama.cpp's number for the way in which rows are pooled."""
    found = [number for number, mode in POOLINGS.items() if form.modes == [mode]]
    if not found or form.by_token:
        raise inexpressible(f"its rows are pooled as {', '.join(form.modes)}, and llama.cpp knows {_POOLINGS}")
    if form.head:
        raise inexpressible("it has layers behind its pooled rows, which are not written")
    return found[0]


def architecture_of(config: ModelConfig) -> Architecture:
    """Find llama.cpp's architecture for the model; raise if none computes it."""
    name = config.family.name
    if (architecture := WRITTEN.get(name)) is None:
        raise ConfigError(
            f"Models of the family {name} are not written as GGUF. Those that are: {', '.join(WRITTEN)}. "
            "llama.cpp's own convert_hf_to_gguf.py may know this one."
        )
    if why := next(_reasons(config, architecture), None):
        raise inexpressible(f"{why}, which llama.cpp's {architecture.name} can't have")
    return architecture


def _reasons(config: ModelConfig, architecture: Architecture) -> Iterator[str]:
    heads, family = config.heads[0], architecture.written_as(config.family.name)
    if config.quantization is not None:
        yield "its weights are quantized already"
    if config.is_two_sided:
        yield "its tokens see those after them"
    if not architecture.has_head_dim and heads.head_dim * config.num_heads != config.hidden_size:
        yield f"{config.num_heads} heads of {heads.head_dim} are not the hidden size, {config.hidden_size:,}"
    if architecture.ties_head and not config.tie_word_embeddings:
        yield "its head has numbers of its own"
    if config.activation != read_activation(family.constants, config.family.activation, {}):
        yield f"its activation is {config.activation}"
    if (scale := family.fact(ScoreScale)) is not None:
        yield from _of_gemma(config, scale, architecture.name == "gemma2")
    if len({window for window in config.windows if window is not None}) > 1:
        yield "its windows differ from layer to layer"
    for rope in config.ropes.ropes:
        yield from _of_rope(rope, config)
    yield from _of_experts(config, family)


def _of_gemma(config: ModelConfig, scale: ScoreScale, is_second: bool) -> Iterator[str]:
    divisor = scale.of(config.num_layers, config.hidden_size // config.num_heads, config.heads[0].head_dim)
    if config.scales.scores is None or not math.isclose(config.scales.scores, divisor**-0.5, rel_tol=1e-6):
        yield "query_pre_attn_scalar is not the size of a head"
    if is_second and (config.scales.score_cap is None or config.scales.logit_cap is None or not any(config.windows)):
        yield "it has no window, or no caps of scores and logits"
    if not is_second and config.scales.score_cap is not None:
        yield "its scores are capped"


def _of_rope(rope: RopeConfig, config: ModelConfig) -> Iterator[str]:
    if rope.kind not in _KINDS_OF_ROPE or (rope.kind == "longrope" and config.family.name != "phi3"):
        yield f"its positions are stretched by {rope.kind}"
    if rope.query_scale:
        yield "its queries grow with their position"
    usual = 0.1 * math.log(rope.factor) + 1
    given = rope.figures.get("attention_factor")
    if rope.kind == "yarn" and (
        rope.figures.get("truncate") is False
        or rope.figures.get("mscale")
        or rope.figures.get("mscale_all_dim")
        or (given is not None and not math.isclose(given, usual, rel_tol=1e-6))
    ):
        yield "its yarn has an mscale, an attention_factor or a truncate of its own"


def _of_experts(config: ModelConfig, family: Family) -> Iterator[str]:
    experts = config.experts
    if experts is None:
        return
    if experts.score != "softmax" or experts.num_groups > 1 or experts.scale != 1.0:
        yield "its experts are chosen otherwise"
    if experts.renormalizes != family.constants.get("norm_topk_prob", True):
        yield f"norm_topk_prob is {str(experts.renormalizes).lower()}"
    first = experts.is_sparse.index(True)
    if not all(experts.is_sparse[first:]) or (first and family.fact(ErnieLayers) is None):
        yield "some of its layers have no experts"
