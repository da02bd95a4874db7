"""Heads for further tokens (MTP), as checkpoints store them: which tensors are theirs, and the config of their layer.

Each reads the model's normed hidden state at a token together with the next token, and has one more layer with
attention. To add a form, add a row to `FORMS`. Reads no weights.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from .config import ModelConfig
from .layer_ropes import LayerRopes


class HeadForm(NamedTuple):
    """The names of a head's parts; `{}` stands for the number of the first layer behind the model's own."""

    prefix: str
    embedding_norm: str
    hidden_norm: str
    projection: str  # of embedding and hidden state side by side
    layer: str  # "": next to the other parts
    norm: str | None  # before the model's output head; None: the model's own
    feeds_normed: bool  # for the token after the next, it reads its own output after that norm, not before


FORMS = (
    HeadForm("model.layers.{}.", "enorm", "hnorm", "eh_proj", "", "shared_head.norm", False),  # DeepSeek-V3, GLM-4.5
    HeadForm("mtp.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "layers.0.", "norm", True),  # Qwen3-Next, 3.5
    HeadForm(
        "model.", "mtp_emb_norm.0", "mtp_hidden_norm.0", "mtp_linear_proj.0", "mtp_block.0.", None, True
    ),  # ERNIE-4.5
)


def find_form(names: Collection[str], num_layers: int) -> HeadForm | None:
    """The form of the heads among these tensors, with its prefix completed."""
    for form in FORMS:
        prefix = form.prefix.format(num_layers)
        if f"{prefix}{form.projection}.weight" in names:
            return form._replace(prefix=prefix)
    return None


def head_config(config: ModelConfig, form: HeadForm, names: Collection[str]) -> ModelConfig:
    """The config of a model with the head's layer alone, which is like the model's last one with full attention."""
    like = max(
        layer
        for layer in range(config.num_layers)
        if config.mixers[layer] is None and config.windows[layer] is None and config.heads[layer].source is None
    )
    is_sparse = any(name.startswith(f"{form.prefix}{form.layer}") and ".experts." in name for name in names)
    return replace(
        config,
        num_layers=1,
        heads=(config.heads[like],),
        windows=(None,),
        mixers=(None,),
        ropes=LayerRopes(config.ropes.ropes, (config.ropes.by_layer[like],)),
        experts=replace(config.experts, is_sparse=(True,)) if config.experts is not None and is_sparse else None,
        num_draft_layers=0,
        token_inputs=None,
        vision=None,
        media_tokens=(),
    )
