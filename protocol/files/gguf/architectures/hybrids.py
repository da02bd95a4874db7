"""Facts of families of which most layers keep a state: gated delta nets, and short convolutions."""

from ..refusals import UNSUPPORTED, MalformedError
from .facts import ATTENTION_BIAS, FULL, Fact, Key, has, number
from .model_metadata import Config, ModelMetadata
from .rope import rotated_part

_USUAL_INTERVAL = 4


def _delta_net_layers(given: ModelMetadata) -> Config:
    inner, value_heads = given.count("ssm.inner_size"), given.count("ssm.time_step_rank")
    if value_heads == 0 or inner % value_heads:
        raise MalformedError(f"shares {inner} numbers among {value_heads} value heads")
    recurrent = given.flags("attention.recurrent_layers")
    if recurrent is None:
        every = given.count("full_attention_interval", _USUAL_INTERVAL) or _USUAL_INTERVAL
        recurrent = [(layer + 1) % every != 0 for layer in range(given.num_layers)]
    kinds = ["linear_attention" if each else FULL for each in recurrent]
    return {"layer_types": kinds, "linear_value_head_dim": inner // value_heads}


def _convolution_layers(given: ModelMetadata) -> Config:
    """Layers without keys convolve."""
    if given.count("attention.sliding_window", 0):
        raise MalformedError("has windows beside short convolutions, which its family hasn't", UNSUPPORTED)
    attends = [count > 0 for count in given.counts("attention.head_count_kv")]
    return {"layer_types": [FULL if each else "conv" for each in attends]}


DELTA_NETS: tuple[Fact, ...] = (
    _delta_net_layers,
    Key("linear_conv_kernel_dim", "ssm.conv_kernel"),
    Key("linear_key_head_dim", "ssm.state_size"),
    Key("linear_num_key_heads", "ssm.group_count"),
    Key("linear_num_value_heads", "ssm.time_step_rank"),
    ATTENTION_BIAS,
    rotated_part,
)
CONVOLUTIONS: tuple[Fact, ...] = (
    _convolution_layers,
    Key("conv_L_cache", "shortconv.l_cache"),
    has("conv_bias", "shortconv.conv.bias"),
    number("norm_eps", "attention.layer_norm_rms_epsilon"),
)
