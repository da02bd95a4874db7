"""The names of a layer's parts in a family's checkpoints, and the projections that they store fused."""

from dataclasses import field
from typing import NamedTuple

from ....records import dataclass


class PartNames(NamedTuple):
    attention_output: str = "o_proj"
    mlp: str = "mlp"
    gate_up_down: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")  # in the MLP
    last_norm: str = "norm"  # after all layers


USUAL = PartNames()
LFM2_NAMES = PartNames("out_proj", "feed_forward", ("w1", "w3", "w2"), "embedding_norm")
# In layers with their own token embedding: the projection from the stream to the gate, and the one back.
TOKEN_INPUT_PARTS = ("per_layer_input_gate", "per_layer_projection")
TOKEN_INPUT_PROJECTION = "per_layer_model_projection"  # projects the first embedding, for all layers


@dataclass(frozen=True)
class StoredProjections:
    """Names of modules within a layer or at the top level; stored names on the left."""

    fused: dict[str, tuple[str, ...]] = field(default_factory=dict)  # several modules' outputs in one, concatenated
    # Fused modules that are ordered key head by key head: its queries, its key, its value.
    by_key_head: frozenset[str] = frozenset()
    renamed: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fused or self.renamed)


_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
AS_LLAMA = StoredProjections()
# Phi-3 and its successors.
QKV_AND_GATE_UP = StoredProjections(
    {"self_attn.qkv_proj": _QKV, "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj")},
)
GATE_UP = StoredProjections({"mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj")})
# Granite 4 without experts.
GRANITE_HYBRID_NAMES = StoredProjections(
    {"shared_mlp.input_linear": ("mlp.gate_proj", "mlp.up_proj")},
    renamed={"shared_mlp.output_linear": "mlp.down_proj"},
)
PHI_NAMES = StoredProjections(
    renamed={
        "self_attn.dense": "self_attn.o_proj",
        "mlp.fc1": "mlp.up_proj",
        "mlp.fc2": "mlp.down_proj",
        "final_layernorm": "norm",
    }
)
STARCODER2_NAMES = StoredProjections(renamed={"mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"})
INTERNLM2_NAMES = StoredProjections(
    {"attention.wqkv": _QKV},
    frozenset({"attention.wqkv"}),
    {
        "tok_embeddings": "embed_tokens",
        "output": "lm_head",
        "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attention.wo": "self_attn.o_proj",
        "feed_forward.w1": "mlp.gate_proj",
        "feed_forward.w3": "mlp.up_proj",
        "feed_forward.w2": "mlp.down_proj",
    },
)
HUNYUAN_NAMES = StoredProjections(
    renamed={"self_attn.query_layernorm": "self_attn.q_norm", "self_attn.key_layernorm": "self_attn.k_norm"}
)
BERT_NAMES = StoredProjections(
    renamed={
        "embeddings.word_embeddings": "embed_tokens",
        "embeddings.position_embeddings": "embed_positions",
        "embeddings.token_type_embeddings": "embed_types",
        "embeddings.LayerNorm": "embed_norm",
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.o_proj",
        "attention.output.LayerNorm": "attention_norm",
        "intermediate.dense": "mlp.up_proj",
        "output.dense": "mlp.down_proj",
        "output.LayerNorm": "mlp_norm",
    }
)
MODERNBERT_NAMES = StoredProjections(
    {"attn.Wqkv": _QKV, "mlp.Wi": ("mlp.gate_proj", "mlp.up_proj")},
    renamed={
        "embeddings.tok_embeddings": "embed_tokens",
        "embeddings.norm": "embed_norm",
        "attn.Wo": "self_attn.o_proj",
        "mlp.Wo": "mlp.down_proj",
        "final_norm": "norm",
    },
)
