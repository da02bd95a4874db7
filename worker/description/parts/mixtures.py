"""Mixtures of experts: a table of how the families' sparse layers differ, and the reading of a config's own.

A sparse layer has many small MLPs, its experts. A router chooses a few of them for each token; some layers add one
shared MLP for all tokens. `families/table.py` names the row of each family.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....records import dataclass
from .activations import Activation
from .sparse_layers import (
    SparseLayers,
    after_dense_layers,
    after_plain_layers,
    by_mlp_types,
    ernie_vl_layers,
    every_layer,
    every_nth_layer,
    from_start_to_end,
    number,
    whole,
)

# Explained in `kernels/experts.py`.
Score = Literal["softmax", "sigmoid", "softmax_of_chosen"]
GroupScore = Literal["best", "best_two"]


@dataclass(frozen=True)
class Stack:
    """The layout of a checkpoint with one tensor for all experts' matrices, the outputs of gate and up interleaved.

    The tensors are floats, or `…_blocks` and `…_scales` in MXFP4, which are never transposed. Biases are `…_bias`.
    """

    gate_up: str = "gate_up_proj"
    down: str = "down_proj"
    is_transposed: bool = False  # each matrix is [in, out]


@dataclass(frozen=True)
class NormsBeside:
    """The norms of a layer that has experts next to its MLP."""

    before_mlp: str = "pre_feedforward_layernorm"
    after_mlp: str = "post_feedforward_layernorm_1"
    before_experts: str = "pre_feedforward_layernorm_2"
    after_experts: str = "post_feedforward_layernorm_2"
    before_router: tuple[str, str] = ("router", "scale")  # the module that has its weight, and the weight's name


@dataclass(frozen=True)
class ExpertNames:
    """A checkpoint's names for the parts of a sparse layer, below the layer's own name."""

    block: str = "mlp"  # "": directly in the layer
    router: str = "gate"  # this and all further names: within the block
    router_has_bias: bool = False
    router_weight: str = "weight"
    router_is_transposed: bool = False  # [hidden, experts]
    choice_bias: str | None = None
    choice_bias_rows: int = 0  # it is stored as [rows, experts], and this layer uses row:
    choice_bias_row: int = 0
    factors: str | None = None  # by expert, the factor of its output
    experts: str = "experts"
    first_expert: int = 0  # the number of the first one
    has_transposed: bool = False  # matrices in a tensor of all experts may be [in, out]
    stack: Stack | None = None
    gate_up_down: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    shared: str = "shared_experts"
    shared_gate: str | None = None  # a product with one output, whose sigmoid scales the shared MLP's output
    beside: NormsBeside | None = None  # the layer also has an MLP of its own; None: experts instead of an MLP

    def within(self, layer: str) -> str:
        """The prefix of the parts' names."""
        return f"{layer}.{self.block}" if self.block else layer


@dataclass(frozen=True)
class Mixture:
    """The sparse layers of a family: the keys of its config and its formulas."""

    sparse_layers: SparseLayers
    switch: str | None = None  # a key that switches experts on; None: their number does
    num_experts: str = "num_experts"  # a key, as the next ones
    top_k: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"  # the text width if there are two
    shared_width: Callable[[dict[str, Any]], int] = lambda config: 0
    score: Score = "softmax"
    group_score: GroupScore = "best"
    num_groups: str | None = None  # a key, as the next one
    kept_groups: str | None = None
    has_groups: Callable[[dict[str, Any]], bool] = lambda config: True  # False: those keys stay unread
    renormalizes: str | None = None  # a key; None: always
    least_sum: Callable[[dict[str, Any]], float] = lambda config: 0.0
    scale: str | None = None  # a key
    has_choice_bias: str | None = None  # a key; None: the checkpoint's tensors show it
    # The activation's slope, shift, limit and cubic; and its name, which a config must give.
    activation: Callable[[dict[str, Any]], tuple[float, ...]] = lambda config: (1.0, 0.0, math.inf, 0.0)
    activation_name: Activation = "silu"
    names: ExpertNames = ExpertNames()
    # The inner width of separate experts for media tokens, from the config; these then serve only the other tokens.
    media_width: Callable[[dict[str, Any]], int] | None = None


@dataclass(frozen=True)
class ExpertsConfig:
    """The sparse layers of one model."""

    names: ExpertNames
    is_sparse: tuple[bool, ...]  # by layer
    num_experts: int
    top_k: int
    width: int  # an expert's inner width
    shared_width: int  # inner width of the shared MLP; 0: there is none
    score: Score
    num_groups: int
    kept_groups: int
    group_score: GroupScore
    renormalizes: bool
    least_sum: float
    scale: float
    activation: tuple[float, ...]  # slope, shift, limit and cubic
    of_media: "ExpertsConfig | None" = None  # the same number of experts for media tokens


def read_experts(
    config: dict[str, Any], mixture: Mixture, num_layers: int, count: Callable[[str], int], where: str
) -> ExpertsConfig | None:
    """Read the config's sparse layers; None if it has none. `count` reads a key that is a number."""
    if not config.get(mixture.switch or mixture.num_experts):
        return None
    is_sparse, has_groups = tuple(mixture.sparse_layers(config, num_layers)), mixture.has_groups(config)
    if not any(is_sparse):
        return None
    read = ExpertsConfig(
        names=_names(config, mixture),
        is_sparse=is_sparse,
        num_experts=count(mixture.num_experts),
        top_k=count(mixture.top_k),
        width=count(mixture.width),
        shared_width=mixture.shared_width(config),
        score=mixture.score,
        num_groups=count(mixture.num_groups) if mixture.num_groups and has_groups else 1,
        kept_groups=count(mixture.kept_groups) if mixture.kept_groups and has_groups else 1,
        group_score=mixture.group_score,
        renormalizes=_renormalizes(config, mixture),
        least_sum=mixture.least_sum(config),
        scale=number(config, mixture.scale) if mixture.scale else 1.0,
        activation=mixture.activation(config),
    )
    _check(read, mixture, where)
    return read if mixture.media_width is None else replace(read, of_media=_of_media(read, mixture.media_width(config)))


def _of_media(text: ExpertsConfig, width: int) -> ExpertsConfig:
    """The experts for media, whose tensors follow those of the experts for text."""
    names = replace(text.names, router_weight="weight_1", choice_bias_row=1, first_expert=text.num_experts)
    return replace(text, names=names, width=width, shared_width=0)


def _names(config: dict[str, Any], mixture: Mixture) -> ExpertNames:
    if mixture.has_choice_bias is None or config.get(mixture.has_choice_bias):
        return mixture.names
    return replace(mixture.names, choice_bias=None)


def _renormalizes(config: dict[str, Any], mixture: Mixture) -> bool:
    if mixture.score == "softmax_of_chosen":  # they already add up to 1
        return False
    return mixture.renormalizes is None or bool(config.get(mixture.renormalizes))


def _check(read: ExpertsConfig, mixture: Mixture, where: str) -> None:
    groups = f"{mixture.num_groups} {read.num_groups}"
    if read.num_experts % read.num_groups:
        raise ConfigError(f"{where}: {read.num_experts} experts don't fall into {groups} of one size.")
    if read.kept_groups > read.num_groups:
        raise ConfigError(f"{where}: {mixture.kept_groups} is {read.kept_groups}, of {groups}.")
    if read.group_score == "best_two" and read.num_groups > 1 and read.num_experts < 2 * read.num_groups:
        raise ConfigError(f"{where}: groups of one expert have no best two ({groups}).")
    choices = read.num_experts // read.num_groups * read.kept_groups
    if read.top_k > choices:
        raise ConfigError(f"{where}: {mixture.top_k} is {read.top_k}, and there are {choices} experts to choose from.")


def _limits_groups(config: dict[str, Any]) -> bool:
    """Whether DeepSeek-V2's `topk_method` chooses groups first."""
    method = config["topk_method"]
    if method not in ("greedy", "group_limited_greedy"):
        raise ValueError(f"topk_method is {shown(method)}, and only greedy and group_limited_greedy are supported")
    if config.get("norm_topk_prob"):
        raise ValueError("norm_topk_prob is true, which this family's own code and transformers take differently")
    return method == "group_limited_greedy"


# --- the families ----------------------------------------------------------------------------------------------------

MIXTRAL = Mixture(
    every_layer,
    num_experts="num_local_experts",
    width="intermediate_size",
    names=ExpertNames(block="block_sparse_moe", gate_up_down=("w1", "w3", "w2")),
)
QWEN2_MOE = Mixture(
    every_nth_layer,
    renormalizes="norm_topk_prob",
    shared_width=lambda config: whole(config, "shared_expert_intermediate_size"),
    names=ExpertNames(shared="shared_expert", shared_gate="shared_expert_gate"),
)
QWEN3_NEXT = QWEN2_MOE
QWEN3_5_MOE = replace(QWEN2_MOE, sparse_layers=every_layer, renormalizes=None)
QWEN3_MOE = Mixture(every_nth_layer, renormalizes="norm_topk_prob")
OLMOE = Mixture(every_layer, width="intermediate_size", renormalizes="norm_topk_prob")
ERNIE_MOE = Mixture(
    from_start_to_end,
    num_experts="moe_num_experts",
    top_k="moe_k",
    shared_width=lambda config: whole(config, "moe_intermediate_size") * whole(config, "moe_num_shared_experts"),
    least_sum=lambda config: number(config, "moe_norm_min"),
    names=ExpertNames(choice_bias="moe_statics.e_score_correction_bias", choice_bias_rows=1),
)
ERNIE_VL_MOE = replace(
    ERNIE_MOE,
    sparse_layers=ernie_vl_layers,
    names=replace(ERNIE_MOE.names, choice_bias_rows=2, router_is_transposed=True),
    media_width=lambda config: whole(config, "media_moe_intermediate_size", 1),
)
GLM4_MOE = Mixture(
    after_dense_layers,
    num_experts="n_routed_experts",
    shared_width=lambda config: whole(config, "moe_intermediate_size") * whole(config, "n_shared_experts"),
    score="sigmoid",
    group_score="best_two",
    num_groups="n_group",
    kept_groups="topk_group",
    renormalizes="norm_topk_prob",
    least_sum=lambda config: 1e-20,
    scale="routed_scaling_factor",
    names=ExpertNames(choice_bias="gate.e_score_correction_bias"),
)
GLM4_MOE_LITE = replace(GLM4_MOE, sparse_layers=by_mlp_types)
DEEPSEEK_V2 = Mixture(
    after_dense_layers,
    num_experts="n_routed_experts",
    shared_width=GLM4_MOE.shared_width,
    num_groups="n_group",
    kept_groups="topk_group",
    has_groups=_limits_groups,
    renormalizes="norm_topk_prob",
    scale="routed_scaling_factor",
)
DEEPSEEK_V3 = DOTS1 = SOLAR_OPEN = GLM4_MOE
MINIMAX_M2 = Mixture(
    every_layer,
    num_experts="num_local_experts",
    width="intermediate_size",
    score="sigmoid",
    names=replace(MIXTRAL.names, choice_bias="e_score_correction_bias"),
)
HY_V3 = Mixture(
    by_mlp_types,
    shared_width=lambda config: whole(config, "moe_intermediate_size") * whole(config, "num_shared_experts"),
    score="sigmoid",
    least_sum=lambda config: 1e-20,
    scale="router_scaling_factor",
    names=ExpertNames(router="router.gate", choice_bias="expert_bias", shared="shared_mlp"),
)
LFM2_MOE = Mixture(
    after_plain_layers,
    score="sigmoid",
    renormalizes="norm_topk_prob",
    least_sum=lambda config: 1e-6,
    scale="routed_scaling_factor",
    has_choice_bias="use_expert_bias",
    names=ExpertNames(block="feed_forward", choice_bias="expert_bias", gate_up_down=("w1", "w3", "w2")),
)
GPT_OSS = Mixture(
    every_layer,
    num_experts="num_local_experts",
    width="intermediate_size",
    score="softmax_of_chosen",
    activation=lambda config: (number(config, "swiglu_alpha"), 1.0, number(config, "swiglu_limit"), 0.0),
    names=ExpertNames(router="router", router_has_bias=True, stack=Stack(is_transposed=True)),
)
GEMMA4 = Mixture(
    every_layer,
    switch="enable_moe_block",
    top_k="top_k_experts",
    activation=lambda config: (2 * math.sqrt(2 / math.pi), 0.0, math.inf, 0.044715),
    activation_name="gelu_tanh",
    names=ExpertNames(block="", router="router.proj", factors="router.per_expert_scale", beside=NormsBeside()),
)
