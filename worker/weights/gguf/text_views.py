"""What the tensors of a decoder are called in GGUF files, for layers that ask by the names of published checkpoints.

llama.cpp names a part alike in all architectures (`blk.3.ffn_down`), so a family's own names come from its config, and
the file's from here. Three things lie otherwise than in published checkpoints:

  queries and keys of some architectures   rows in pairs, since neighbours rotate against one another there
  norms that multiply with 1 + weight      the sum is stored
  phi3's and glm4's projections            several in one tensor: `attn_qkv`, and gate and up in `ffn_up`

Experts are in `expert_views.py`; what stands in the place of attention in `mixer_views.py`.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from ....protocol.files.gguf.architectures.architecture import Architecture
from ....protocol.files.gguf.architectures.table import ARCHITECTURES
from ...description.config import ModelConfig
from ...description.families.family import QKV
from ...description.parts.mixers import DeltaNet, ShortConvolution
from ...description.parts.stored_names import TOKEN_INPUT_PARTS, TOKEN_INPUT_PROJECTION
from .views import ALL, Made, Rows, View, halves_of_pairs, less_one, row

_KINDS = ("weight", "bias")
_PLAIN = Architecture("")  # of a file that doesn't say


class TensorNames(Protocol):
    """The names of a file's tensors."""

    @property
    def architecture(self) -> str: ...

    def has(self, name: str) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Outputs first; empty where there is no such tensor."""


class Views:
    """Of each name that a layer may ask for, what it is in the file. Only what is there is shown."""

    def __init__(self, stored: TensorNames) -> None:
        self.stored = stored
        self.architecture = ARCHITECTURES.get(stored.architecture, _PLAIN)
        self.found: dict[str, View] = {}

    def add(self, name: str, view: View) -> None:
        if all(map(self.stored.has, view.tensors)):
            self.found[name] = view

    def tensor(self, name: str, *candidates: str, make: Callable[[Tensor], Tensor] | None = None) -> None:
        """The first of these that is there."""
        if (own := next(filter(self.stored.has, candidates), None)) is not None:
            self.found[name] = Rows(own) if make is None else Made((own,), make)

    def module(self, name: str, *candidates: str, rows: slice | Tensor = ALL) -> None:
        """A projection's weight and bias, or these rows of both."""
        for kind in _KINDS:
            if (own := next(filter(self.stored.has, (f"{each}.{kind}" for each in candidates)), None)) is not None:
                self.found[f"{name}.{kind}"] = Rows(own, rows)

    def norm(self, name: str, *candidates: str, is_less_one: bool = False) -> None:
        weights, biases = ([f"{each}.{kind}" for each in candidates] for kind in _KINDS)
        self.tensor(f"{name}.weight", *weights, make=less_one if is_less_one else None)
        self.tensor(f"{name}.bias", *biases)


def add_text(views: Views, config: ModelConfig) -> None:
    """All of a decoder but its mixtures and mixers."""
    last_norm, is_less_one = config.family.names.last_norm, config.family.norm.is_stored_less_one
    views.module("model.embed_tokens", "token_embd")
    views.norm(f"model.{last_norm}", "output_norm", "token_embd_norm", is_less_one=is_less_one)
    views.module("lm_head", "output")
    views.module("model.embed_tokens_per_layer", "per_layer_token_embd")
    views.module(f"model.{TOKEN_INPUT_PROJECTION}", "per_layer_model_proj")
    views.norm("model.per_layer_projection_norm", "per_layer_proj_norm")
    for number in range(config.num_layers):
        layer, stored = f"model.layers.{number}", f"blk.{number}"
        _add_norms(views, config, layer, stored)
        _add_mlp(views, config, number, layer, stored)
        if not isinstance(config.mixers[number], DeltaNet | ShortConvolution) and config.latent is None:
            _add_attention(views, config, number, layer, stored)


def _add_norms(views: Views, config: ModelConfig, layer: str, stored: str) -> None:
    places, is_less_one = config.norm_places, config.family.norm.is_stored_less_one
    # Where nothing is normed behind attention, some architectures call the norm before the MLP so.
    before_mlp = ("ffn_norm",) if places.after_attention else ("ffn_norm", "post_attention_norm")
    names: dict[str | None, tuple[str, ...]] = {
        places.before_attention: ("attn_norm",),
        places.after_attention: ("post_attention_norm",),
        places.before_mlp: before_mlp,
        places.after_mlp: ("post_ffw_norm",),
    }
    if config.experts is not None and (beside := config.experts.names.beside) is not None:
        names |= {
            beside.before_mlp: ("ffn_norm",),
            beside.after_mlp: ("post_ffw_norm_1",),
            beside.before_experts: ("pre_ffw_norm_2",),
            beside.after_experts: ("post_ffw_norm_2",),
        }
    for name, own in names.items():
        if name is not None:
            candidates = (f"{stored}.{each}" for each in own)
            views.norm(f"{layer}.{name}", *candidates, is_less_one=is_less_one)
    gate, projection = TOKEN_INPUT_PARTS
    views.module(f"{layer}.{gate}", f"{stored}.inp_gate")
    views.module(f"{layer}.{projection}", f"{stored}.proj")
    views.norm(f"{layer}.post_per_layer_input_norm", f"{stored}.post_norm")
    views.tensor(f"{layer}.layer_scalar", f"{stored}.layer_output_scale.weight")


def _add_attention(views: Views, config: ModelConfig, number: int, layer: str, stored: str) -> None:
    block, heads = f"{layer}.self_attn", config.heads[number]
    counts = (config.num_heads * (1 + config.family.gates_attention), heads.num_kv_heads, heads.num_kv_heads)
    is_fused = views.stored.has(f"{stored}.attn_qkv.weight")
    begin = 0
    for name, part, count in zip(QKV, "qkv", counts, strict=True):
        rows: slice | Tensor = ALL
        if is_fused:
            rows = slice(begin, begin + count * heads.head_dim)
            begin += count * heads.head_dim
        elif views.architecture.pairs_rows and part != "v":
            rows = halves_of_pairs(count, heads.head_dim)
        views.module(f"{block}.{name}", f"{stored}.attn_qkv" if is_fused else f"{stored}.attn_{part}", rows=rows)
    views.module(f"{block}.{config.family.names.attention_output}", f"{stored}.attn_output")
    views.tensor(f"{block}.sinks", f"{stored}.attn_sinks.weight", f"{stored}.attn_sinks")
    for part, count in (("q", config.num_heads), ("k", heads.num_kv_heads)):
        own, name = f"{stored}.attn_{part}_norm", f"{block}.{config.family.qk_norm_name.format(part)}"
        if config.qk_norm == "each head its own tensor":
            for head in range(count):
                views.add(f"{name}.norms.{head}.weight", Made((f"{own}.weight",), row(head)))
        else:
            is_by_head = config.qk_norm == "by head"
            views.norm(name, own, is_less_one=is_by_head and config.family.norm.is_stored_less_one)


def _add_mlp(views: Views, config: ModelConfig, number: int, layer: str, stored: str) -> None:
    if not config.has_mlp(number):
        return
    names, width = config.family.names, config.mlp_width(number)
    gate, up, down = (f"{layer}.{names.mlp}.{each}" for each in names.gate_up_down)
    views.module(down, f"{stored}.ffn_down")
    if config.family.has_gate and views.stored.shape(f"{stored}.ffn_up.weight")[:1] == (2 * width,):
        views.module(gate, f"{stored}.ffn_up", rows=slice(width))
        views.module(up, f"{stored}.ffn_up", rows=slice(width, 2 * width))
    else:
        views.module(gate, f"{stored}.ffn_gate")
        views.module(up, f"{stored}.ffn_up")
