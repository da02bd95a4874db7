"""Facts of mixtures of experts."""

from typing import Any

from ..refusals import UNSUPPORTED, MalformedError
from .facts import Fact, Key, WritableFact, number
from .model_metadata import Config, ModelMetadata
from .rope import stretches_by_yarn, yarn

_SIGMOID = 2  # llama.cpp's number for it


def has_experts(given: ModelMetadata) -> bool:
    return given.count("expert_count", 0) > 0


def experts(num_experts: str = "num_experts", width: str = "moe_intermediate_size") -> tuple[Key, ...]:
    """The number of experts, how many a token uses, and their width; families name the first and last differently.

    If the width has the same name as that of an MLP, the header needn't repeat it.
    """
    says_width, header = width != "intermediate_size", "expert_feed_forward_length"
    return (
        Key(num_experts, "expert_count"),
        Key("num_experts_per_tok", "expert_used_count"),
        Key(width, header, default=lambda given: given.most("feed_forward_length", 0), is_written=says_width),
    )


SHARED_WIDTH = Key("shared_expert_intermediate_size", "expert_shared_feed_forward_length", default=0)


def sparse_layers(given: ModelMetadata) -> list[bool]:
    """For each layer, whether it has experts."""
    return given.has_in_layers("ffn_gate_inp.weight")


def dense_layers(given: ModelMetadata) -> Config:
    """The layers without experts, as Qwen's configs list them."""
    sparse = sparse_layers(given)
    return {"decoder_sparse_step": 1, "mlp_only_layers": [layer for layer, each in enumerate(sparse) if not each]}


def dense_before_sparse(given: ModelMetadata, *_: Any) -> int:
    """The number of layers without experts, which come first."""
    sparse = sparse_layers(given)
    first = sparse.index(True) if True in sparse else given.num_layers
    if not all(sparse[first:]):
        raise MalformedError("has layers without experts behind those with them, which its family hasn't", UNSUPPORTED)
    return first


class ErnieLayers(WritableFact):
    """Experts in every n-th layer, from one layer to another."""

    def __call__(self, given: ModelMetadata) -> Config:
        step = given.count("interleave_moe_layer_step", 1) or 1
        numbers = [layer for layer, each in enumerate(sparse_layers(given)) if each]
        if not numbers or numbers != [layer for layer in range(numbers[0], numbers[-1] + 1) if (layer + 1) % step == 0]:
            raise MalformedError("has experts in other layers than its metadata says")
        return {
            "moe_layer_start_index": numbers[0],
            "moe_layer_end_index": numbers[-1],
            "moe_layer_interval": step,
        }

    def write(self, config: Config) -> dict[str, Any]:
        """For consecutive layers with experts."""
        return {"interleave_moe_layer_step": 1, "leading_dense_block_count": config["first_k_dense_replace"]}


def require_sigmoid(given: ModelMetadata) -> Config:
    if given.count("expert_gating_func", _SIGMOID) not in (0, _SIGMOID):
        raise MalformedError("chooses experts by another function than a sigmoid, which its family hasn't", UNSUPPORTED)
    return {}


def uses_sigmoid(given: ModelMetadata) -> bool:
    return given.count("expert_gating_func", 0) == _SIGMOID


SCALING_FACTOR = number("routed_scaling_factor", "expert_weights_scale", 0.0, {0: 1.0})
# As in the configs of DeepSeek and GLM.
ROUTED: tuple[Fact, ...] = (
    *experts("n_routed_experts"),
    Key("n_shared_experts", "expert_shared_count", default=0),
    SCALING_FACTOR,
    Key("norm_topk_prob", "expert_weights_norm", ModelMetadata.flag, False),
    Key("n_group", "expert_group_count", default=0, meaning={0: 1}),
    Key("topk_group", "expert_group_used_count", default=0, meaning={0: 1}),
    Key("first_k_dense_replace", "leading_dense_block_count", dense_before_sparse),
)


def hunyuan_layers(given: ModelMetadata) -> Config:
    width = given.count("expert_feed_forward_length")
    shared = given.count("expert_shared_feed_forward_length", width)
    if width == 0 or shared % width:
        raise MalformedError("has shared experts whose width is no multiple of an expert's")
    kinds = ["sparse" if each else "dense" for each in sparse_layers(given)]
    return {"num_shared_experts": shared // width, "mlp_layer_types": kinds}


def gpt_oss_rope(given: ModelMetadata) -> Config:
    """YaRN's figures are those of its published configs, which llama.cpp takes as its own defaults."""
    figures: Config = {"rope_type": "default"}
    if stretches_by_yarn(given):
        figures = {**yarn(given), "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    figures["rope_theta"] = given.number("rope.freq_base", 150_000.0)
    return {"rope_parameters": figures, "rope_scaling": None}
