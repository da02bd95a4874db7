"""Sets of llama.cpp's names for the tensors of a layer, of which rows say what an architecture may have."""

QKV = frozenset(("attn_q", "attn_k", "attn_v"))
PLAIN = QKV | {"attn_norm", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}
NORMS_BEHIND = frozenset(("post_attention_norm", "post_ffw_norm"))
HEAD_NORMS = frozenset(("attn_q_norm", "attn_k_norm"))
EXPERTS = frozenset(("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"))
SHARED_EXPERT = frozenset(("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"))
