"""The names of an encoder's tensors in its separate GGUF file (`mmproj-….gguf`).

llama.cpp uses the same names for all encoders. It stores a patch projection over two frames as two tensors, and older
converters swapped `ffn_up` and `ffn_down`, which the shapes reveal.
"""

import numpy

from ...description.vision_config import VisionConfig
from .text_views import Views
from .views import Made, Rows, less_one

_PATCH = "v.patch_embd.weight"


def add_vision(views: Views, vision: VisionConfig) -> None:
    names = vision.family.names
    if vision.family.patch_dims == 5:
        views.add(f"visual.{names.patch}.weight", Made((_PATCH, f"{_PATCH}.1"), lambda *frames: numpy.stack(frames, 2)))
        views.add(f"visual.{names.patch}.bias", Rows("v.patch_embd.bias"))
    else:
        views.module(f"visual.{names.patch}", "v.patch_embd")
    views.add(f"visual.{names.table}.weight", Rows("v.position_embd.weight"))
    for number in range(vision.num_layers):
        block = f"visual.{names.blocks}.{number}"
        views.module(f"{block}.{names.before_attention}", f"v.blk.{number}.ln1")
        views.module(f"{block}.{names.before_mlp}", f"v.blk.{number}.ln2")
        _add_attention(views, vision, f"{block}.{names.attention}", f"v.blk.{number}")
        _add_mlp(views, vision, f"{block}.mlp", f"v.blk.{number}")
    _add_mergers(views, vision)


def _add_attention(views: Views, vision: VisionConfig, block: str, stored: str) -> None:
    """Add queries, keys and values in one tensor or three, both in the file and for layers."""
    names, hidden = vision.family.names, vision.hidden_size
    views.module(f"{block}.{names.output}", f"{stored}.attn_out")
    if len(names.heads) == 1:
        [name] = names.heads
        for kind in ("weight", "bias"):
            apart = tuple(f"{stored}.attn_{part}.{kind}" for part in "qkv")
            views.add(f"{block}.{name}.{kind}", Made(apart, lambda *parts: numpy.concatenate(parts)))
        views.module(f"{block}.{name}", f"{stored}.attn_qkv")
        return
    for number, (name, part) in enumerate(zip(names.heads, "qkv", strict=True)):
        views.module(f"{block}.{name}", f"{stored}.attn_qkv", rows=slice(number * hidden, (number + 1) * hidden))
        views.module(f"{block}.{name}", f"{stored}.attn_{part}")


def _add_mlp(views: Views, vision: VisionConfig, block: str, stored: str) -> None:
    *gate, up, down = vision.family.mlp
    own_up, own_down = f"{stored}.ffn_up", f"{stored}.ffn_down"
    is_swapped = views.stored.shape(f"{own_down}.weight")[-1:] != (vision.intermediate_size,)
    views.module(f"{block}.{up}", own_down if is_swapped else own_up)
    views.module(f"{block}.{down}", own_up if is_swapped else own_down)
    for name in gate:
        views.module(f"{block}.{name}", f"{stored}.ffn_gate")


def _add_mergers(views: Views, vision: VisionConfig) -> None:
    merger = vision.family.merger
    if vision.family.merging == "mlp":
        views.module(f"visual.merger.{merger.norm}", "v.post_ln")
        views.module(f"visual.merger.{merger.up}", "mm.0")
        views.module(f"visual.merger.{merger.down}", "mm.2")
    else:
        views.module("visual.post_layernorm", "v.post_ln")
    for number, layer in enumerate(vision.taps):
        block, stored = f"visual.deepstack_merger_list.{number}", f"v.deepstack.{layer}"
        views.module(f"{block}.{merger.norm}", f"{stored}.norm")
        views.module(f"{block}.{merger.up}", f"{stored}.fc1")
        views.module(f"{block}.{merger.down}", f"{stored}.fc2")
    views.add("visual.projector.mm_soft_emb_norm.weight", Made(("mm.soft_emb_norm.weight",), less_one))
    views.add("visual.projector.mm_input_projection_weight", Rows("mm.input_projection.weight"))
    views.module("visual.projector.modality_projection.proj", "mm.model.fc")
