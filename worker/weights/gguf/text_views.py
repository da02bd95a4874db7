"""Finds the tensors of a decoder in a GGUF file, for layers that ask by the names of published checkpoints.

One table maps the names for all architectures (`protocol/files/gguf/architectures/tensors.py`). This file handles the
differences from published checkpoints:

  queries and keys of some architectures   rows in pairs, since neighbours rotate against one another there
  norms that multiply with 1 + weight      the sum is stored
  phi3's and glm4's projections            several in one tensor: `attn_qkv`, and gate and up in `ffn_up`
  experts                                  one tensor has a matrix of every expert; old files have a tensor for each
  delta nets                               -exp(A_log) in `ssm_a`; Qwen3-Next's two small projections in one tensor;
                                           Qwen3.5's value heads round by round: the first of each key head, then the
                                           second one of each
"""

from typing import Protocol

import numpy

from ....kernels.arrays import Array
from ....protocol.files.gguf.architectures.architecture import Architecture, Family
from ....protocol.files.gguf.architectures.table import ARCHITECTURES
from ....protocol.files.gguf.architectures.tensors import LAYER, MODEL, NORM_WEIGHTS
from ...description.config import ModelConfig
from ...description.families.family import QKV
from ...description.parts.mixers import DeltaNet, ShortConvolution
from ...description.parts.mixtures import ExpertsConfig
from .views import (
    ALL,
    Columns,
    Made,
    Rows,
    View,
    alternating,
    behind,
    grouped_heads,
    halves_of_pairs,
    in_turns,
    less_one,
    log_of_negated,
    row,
)

_PLAIN = Architecture("", Family("", ""))  # for a file without one
Words = dict[str, str | None]


class TensorNames(Protocol):
    """The names of a file's tensors."""

    @property
    def architecture(self) -> str: ...

    def has(self, name: str) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Outputs first; empty where there is no such tensor."""


class Views:
    """Maps each name that a layer may ask for to its view of the file, if the file has it."""

    def __init__(self, stored: TensorNames) -> None:
        self.stored = stored
        self.architecture = ARCHITECTURES.get(stored.architecture, _PLAIN)
        self.found: dict[str, View] = {}

    def add(self, name: str, view: View) -> None:
        """Add a view, replacing an earlier one."""
        if all(map(self.stored.has, view.tensors)):
            self.found[name] = view

    def module(self, name: str, own: str, rows: slice | Array = ALL) -> None:
        """A projection's weight and bias, or these rows of both."""
        for kind in ("weight", "bias"):
            self.add(f"{name}.{kind}", Rows(f"{own}.{kind}", rows))


def add_text(views: Views, config: ModelConfig) -> None:
    adds_one, last_norm = config.family.norm.is_stored_less_one, f"model.{config.family.names.last_norm}"
    for own, name in MODEL.items():
        views.module(name, own)
    for own, name in views.architecture.behind.items():
        views.module(name, own)
    is_encoder = config.text_embedding is not None
    if is_encoder:
        views.module("model.embed_norm", "token_embd_norm")
    for own in ("output_norm",) if is_encoder else ("token_embd_norm", "output_norm"):
        views.module(last_norm, own)
        if adds_one:
            views.add(f"{last_norm}.weight", Made((f"{own}.weight",), less_one))
    for number, mixer in enumerate(config.mixers):
        layer, stored = f"model.layers.{number}", f"blk.{number}"
        words = {word: name for word, name in _words(config, number).items() if name is not None}
        for part, name in LAYER.items():
            try:
                asked, own = f"{layer}.{name.format_map(words)}", f"{stored}.{part}"
            except KeyError:
                continue
            views.add(asked, Made((own,), less_one) if adds_one and part in NORM_WEIGHTS else Rows(own))
        if config.has_mlp(number) and config.family.has_gate:
            _add_fused_mlp(views, config.mlp_width(number), f"{layer}.{words['mlp']}", words, stored)
        if isinstance(mixer, DeltaNet):
            _add_delta_net(views, mixer, f"{layer}.linear_attn", stored)
        elif not isinstance(mixer, ShortConvolution) and config.latent is None:
            _add_attention(views, config, number, f"{layer}.self_attn", stored)
        if config.experts is not None and config.experts.is_sparse[number]:
            _add_experts(views, config.hidden_size, config.experts, layer, stored)


# --- what braces stand for --------------------------------------------------------------------------------------------


def _words(config: ModelConfig, number: int) -> Words:
    """The names of a layer's parts; None and no word: the layer hasn't the part."""
    family, norms, mixer = config.family, config.norm_places, config.mixers[number]
    found: Words = {
        "before_attention": norms.before_attention,
        # Without a norm after attention, some architectures use this name for the norm before the MLP.
        "behind_attention": norms.after_attention or norms.before_mlp,
        "before_mlp": norms.before_mlp,
        "after_mlp": norms.after_mlp,
    }
    if config.has_mlp(number):
        found |= {"mlp": family.names.mlp, **dict(zip(("gate", "up", "down"), family.names.gate_up_down, strict=True))}
    if config.experts is not None:
        found |= _expert_words(config.experts, config.experts.is_sparse[number])
    if isinstance(mixer, DeltaNet):
        return found | {"delta_net": "linear_attn"}
    if isinstance(mixer, ShortConvolution):
        return found | {"convolution": "conv"}
    if config.qk_norm != "each head its own tensor":
        found |= {f"{part}_norm": family.qk_norm_name.format(part) for part in "qk"}
    return found | {"attention": "self_attn", "attention_output": family.names.attention_output}


def _expert_words(experts: ExpertsConfig, is_sparse: bool) -> Words:
    names, found = experts.names, Words()
    if (extra := names.beside) is not None:
        found = {"before_mlp": extra.before_mlp, "after_mlp_beside": extra.after_mlp}
        found |= {"before_experts": extra.before_experts, "after_experts": extra.after_experts}
    if not is_sparse:
        return found
    within: Words = {
        "router": names.router,
        "router_scale": None if extra is None else ".".join(extra.before_router),
        "choice_bias": names.choice_bias,
        "factors": names.factors,
        "down_biases": None if names.stack is None else f"{names.experts}.{names.stack.down}_bias",
        "shared": names.shared if experts.shared_width else None,
        "shared_gate": names.shared_gate if experts.shared_width else None,
    }
    return found | {word: name and f"{names.block}.{name}".lstrip(".") for word, name in within.items()}


# --- differences from published checkpoints ---------------------------------------------------------------------------


def _add_attention(views: Views, config: ModelConfig, number: int, block: str, stored: str) -> None:
    heads, begin = config.heads[number], 0
    for name, part, count in zip(QKV, "qkv", (config.num_heads, heads.num_kv_heads, heads.num_kv_heads), strict=True):
        gates = count if part == "q" and config.family.gates_attention else 0
        if views.architecture.pairs_rows and part != "v":
            views.module(f"{block}.{name}", f"{stored}.attn_{part}", halves_of_pairs(count + gates, heads.head_dim))
        end = begin + (count + gates) * heads.head_dim
        views.module(f"{block}.{name}", f"{stored}.attn_qkv", slice(begin, end))
        begin = end
        if config.qk_norm == "each head its own tensor" and part != "v":
            norm = f"{block}.{config.family.qk_norm_name.format(part)}"
            for head in range(count):
                views.add(f"{norm}.norms.{head}.weight", Made((f"{stored}.attn_{part}_norm.weight",), row(head)))


def _add_fused_mlp(views: Views, width: int, block: str, words: dict[str, str], stored: str) -> None:
    if views.stored.shape(f"{stored}.ffn_up.weight")[:1] == (2 * width,):
        views.module(f"{block}.{words['gate']}", f"{stored}.ffn_up", slice(width))
        views.module(f"{block}.{words['up']}", f"{stored}.ffn_up", slice(width, 2 * width))


def _add_experts(views: Views, hidden_size: int, experts: ExpertsConfig, layer: str, stored: str) -> None:
    names = experts.names
    block = f"{names.within(layer)}.{names.experts}"

    def matrix(tensor: str, number: int, rows: int) -> Rows:
        return Rows(f"{stored}.{tensor}.weight", slice(number * rows, (number + 1) * rows))

    for part, own in zip(("gate", "up", "down"), names.gate_up_down, strict=True):
        rows = hidden_size if part == "down" else experts.width
        for number in range(experts.num_experts):
            shown = f"{block}.{names.first_expert + number}.{own}.weight"
            views.add(shown, Rows(f"{stored}.ffn_{part}.{number}.weight"))
            views.add(shown, matrix(f"ffn_{part}_exps", number, rows))
            if part != "down":  # both in one tensor
                views.add(shown, matrix("ffn_gate_up_exps", 2 * number + (part == "up"), rows))
    if names.stack is not None:
        biases = tuple(f"{stored}.ffn_{part}_exps.bias" for part in ("gate", "up"))
        views.add(f"{block}.{names.stack.gate_up}_bias", Made(biases, alternating))


def _add_delta_net(views: Views, net: DeltaNet, block: str, stored: str) -> None:
    keys, numbers = net.num_key_heads, numpy.arange(net.num_value_heads)
    if views.architecture.deals_value_heads and net.num_shared > 1:
        # The locations of each value head's rows in the file, and of its single values.
        rows, numbers = (grouped_heads(keys, net.num_shared, size) for size in (net.value_dim, 1))
        mixed = behind(2 * net.keys, rows)
        for own, name, chosen in (
            ("attn_qkv", "in_proj_qkv", mixed),
            ("ssm_conv1d", "conv1d", mixed),
            ("attn_gate", "in_proj_z", rows),
            ("ssm_beta", "in_proj_b", numbers),
            ("ssm_alpha", "in_proj_a", numbers),
        ):
            views.module(f"{block}.{name}", f"{stored}.{own}", chosen)
        views.add(f"{block}.dt_bias", Rows(f"{stored}.ssm_dt.bias", numbers))
        views.add(f"{block}.out_proj.weight", Columns(f"{stored}.ssm_out.weight", rows))
    for name, is_second in (("in_proj_b", False), ("in_proj_a", True)):
        views.module(f"{block}.{name}", f"{stored}.ssm_ba", in_turns(keys, net.num_shared, is_second))
    for own in (f"{stored}.ssm_a.weight", f"{stored}.ssm_a"):
        views.add(f"{block}.A_log", Made((own,), lambda stored: log_of_negated(stored)[numbers]))
