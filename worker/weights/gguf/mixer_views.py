"""What stands in the place of attention, as GGUF files have it: latents, gated delta nets, short convolutions.

latents      `attn_kv_b` as published, or its two halves by head: `attn_k_b`, transposed, and `attn_v_b`
delta nets   queries, keys and values in `attn_qkv`, the gate in `attn_gate`, -exp(A_log) in `ssm_a`
             Qwen3.5's value heads go round by round: the first of each key head, then the second one of each
"""

import torch
from torch import Tensor

from ...description.config import ModelConfig
from ...description.parts.mixers import DeltaNet, ShortConvolution
from .text_views import Views
from .views import ALL, Columns, Made, Rows, behind, grouped_heads, in_turns


def add_mixers(views: Views, config: ModelConfig) -> None:
    for number, mixer in enumerate(config.mixers):
        layer, stored = f"model.layers.{number}", f"blk.{number}"
        if isinstance(mixer, DeltaNet):
            _add_delta_net(views, mixer, f"{layer}.linear_attn", stored)
        elif isinstance(mixer, ShortConvolution):
            _add_convolution(views, f"{layer}.conv", f"{stored}.shortconv")
        elif config.latent is not None:
            _add_latent(views, f"{layer}.self_attn", stored)


def _add_latent(views: Views, block: str, stored: str) -> None:
    for name, own in {
        "q_proj": "attn_q",
        "q_a_proj": "attn_q_a",
        "q_b_proj": "attn_q_b",
        "kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "kv_b_proj": "attn_kv_b",
        "k_b_proj": "attn_k_b",
        "v_b_proj": "attn_v_b",
        "o_proj": "attn_output",
    }.items():
        views.module(f"{block}.{name}", f"{stored}.{own}")
    views.norm(f"{block}.q_a_layernorm", f"{stored}.attn_q_a_norm")
    views.norm(f"{block}.kv_a_layernorm", f"{stored}.attn_kv_a_norm")


def _add_convolution(views: Views, block: str, stored: str) -> None:
    for name in ("in_proj", "out_proj", "conv"):
        views.module(f"{block}.{name}", f"{stored}.{name}")


def _add_delta_net(views: Views, net: DeltaNet, block: str, stored: str) -> None:
    keys = net.num_key_heads
    # Where the file has each value head's rows, and each one's only number.
    rows: slice | Tensor = ALL
    numbers: slice | Tensor = ALL
    mixed: slice | Tensor = ALL
    views.module(f"{block}.out_proj", f"{stored}.ssm_out")
    if views.architecture.deals_value_heads and net.num_shared > 1:
        order = rows = grouped_heads(keys, net.num_shared, net.value_dim)
        numbers = grouped_heads(keys, net.num_shared, 1)
        mixed = behind(2 * net.keys, order)
        views.add(f"{block}.out_proj.weight", Columns(f"{stored}.ssm_out.weight", order))
    views.module(f"{block}.in_proj_qkv", f"{stored}.attn_qkv", rows=mixed)
    views.module(f"{block}.in_proj_z", f"{stored}.attn_gate", rows=rows)
    views.module(f"{block}.in_proj_b", f"{stored}.ssm_beta", rows=numbers)
    views.module(f"{block}.in_proj_a", f"{stored}.ssm_alpha", rows=numbers)
    for name, is_second in (("in_proj_b", False), ("in_proj_a", True)):  # of Qwen3-Next, in one tensor
        views.module(f"{block}.{name}", f"{stored}.ssm_ba", rows=in_turns(keys, net.num_shared, is_second))
    views.module(f"{block}.conv1d", f"{stored}.ssm_conv1d", rows=mixed)
    for own in (f"{stored}.ssm_a.weight", f"{stored}.ssm_a"):
        views.add(f"{block}.A_log", Made((own,), lambda stored: torch.log(-stored.float())[numbers]))
    views.add(f"{block}.dt_bias", Rows(f"{stored}.ssm_dt.bias", numbers))
    views.norm(f"{block}.norm", f"{stored}.ssm_norm")
