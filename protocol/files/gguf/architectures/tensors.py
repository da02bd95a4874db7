"""llama.cpp's names of a model's tensors, the same in all architectures, and the names that layers use.

Left: llama.cpp's name; right: the name in published checkpoints. Braces mark names that differ by family; if a family
has no such name, its layers lack the part. If several tensors map to one name, the last one in the file counts.
`worker/weights/gguf/text_views.py` adds what isn't one tensor each, such as experts.
"""

# Modules: each has a `….weight`, and perhaps a `….bias`.
MODEL = {
    "token_embd": "model.embed_tokens",
    "position_embd": "model.embed_positions",
    "token_types": "model.embed_types",
    "output": "lm_head",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
# Within a layer; the prefix is `blk.` and its number.
_LAYER = {
    "attn_q": "{attention}.q_proj",
    "attn_k": "{attention}.k_proj",
    "attn_v": "{attention}.v_proj",
    "attn_output": "{attention}.{attention_output}",
    "attn_output_norm": "{behind_attention}",  # of encoders
    "layer_output_norm": "{after_mlp}",  # likewise
    "attn_q_a": "{attention}.q_a_proj",
    "attn_q_a_norm": "{attention}.q_a_layernorm",
    "attn_q_b": "{attention}.q_b_proj",
    "attn_kv_a_mqa": "{attention}.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "{attention}.kv_a_layernorm",
    "attn_kv_b": "{attention}.kv_b_proj",  # or its two halves by head, the keys' transposed
    "attn_k_b": "{attention}.k_b_proj",
    "attn_v_b": "{attention}.v_b_proj",
    "attn_qkv": "{delta_net}.in_proj_qkv",
    "attn_gate": "{delta_net}.in_proj_z",
    "ssm_beta": "{delta_net}.in_proj_b",
    "ssm_alpha": "{delta_net}.in_proj_a",
    "ssm_conv1d": "{delta_net}.conv1d",
    "ssm_norm": "{delta_net}.norm",
    "ssm_out": "{delta_net}.out_proj",
    "shortconv.in_proj": "{convolution}.in_proj",
    "shortconv.conv": "{convolution}.conv",
    "shortconv.out_proj": "{convolution}.out_proj",
    "ffn_gate": "{mlp}.{gate}",
    "ffn_up": "{mlp}.{up}",
    "ffn_down": "{mlp}.{down}",
    "ffn_gate_inp": "{router}",
    "ffn_gate_shexp": "{shared}.gate_proj",
    "ffn_up_shexp": "{shared}.up_proj",
    "ffn_down_shexp": "{shared}.down_proj",
    "ffn_gate_inp_shexp": "{shared_gate}",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
# Norms that some families store without the added 1.
_NORMS = {
    "attn_norm": "{before_attention}",
    "post_attention_norm": "{behind_attention}",
    "ffn_norm": "{before_mlp}",
    "post_ffw_norm": "{after_mlp}",
    "post_ffw_norm_1": "{after_mlp_beside}",
    "pre_ffw_norm_2": "{before_experts}",
    "post_ffw_norm_2": "{after_experts}",
    "attn_q_norm": "{attention}.{q_norm}",
    "attn_k_norm": "{attention}.{k_norm}",
}
NORM_WEIGHTS = frozenset(f"{own}.weight" for own in _NORMS)
_KINDS = ("weight", "bias")
# Full names.
LAYER = {f"{own}.{kind}": f"{name}.{kind}" for own, name in (_LAYER | _NORMS).items() for kind in _KINDS} | {
    "attn_sinks": "{attention}.sinks",
    "attn_sinks.weight": "{attention}.sinks",
    "ssm_dt.bias": "{delta_net}.dt_bias",
    "exp_probs_b": "{choice_bias}",
    "exp_probs_b.bias": "{choice_bias}",
    "ffn_down_exps.scale": "{factors}",
    "ffn_down_exps.bias": "{down_biases}",
    "ffn_gate_inp.scale": "{router_scale}",
    "layer_output_scale.weight": "layer_scalar",
}

# Tensors whose presence depends on the architecture's row.
QKV = frozenset(("attn_q", "attn_k", "attn_v"))
PLAIN = QKV | {"attn_norm", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}
NORMS_BEHIND = frozenset(("post_attention_norm", "post_ffw_norm"))
HEAD_NORMS = frozenset(("attn_q_norm", "attn_k_norm"))
EXPERTS = frozenset(("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"))
SHARED_EXPERT = frozenset(("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"))
