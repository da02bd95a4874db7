"""llama.cpp's architectures that run here, one row each, by name (`general.architecture`).

A row has the published classes whose models such files contain. A class's facts are the keys of its configs and headers
that differ from those of all families or add to them. Facts that are more than a key are in the file of their kind.
"""

from . import dense, gemma, mixers, mixtures, numbers
from .architecture import Architecture, Family
from .facts import ALL_BIASES, ATTENTION_BIAS, LAYER_NORM, Key, Windows, has, number
from .gemma import GELU, ScoreScale
from .mixers import CONVOLUTIONS, DELTA_NETS, LATENTS
from .mixtures import ROUTED, SCALING_FACTOR, SHARED_WIDTH, dense_layers, experts, require_sigmoid
from .rope import CONTEXT, original_context, rotated_part
from .tensors import EXPERTS, HEAD_NORMS, NORMS_BEHIND, PLAIN, QKV, SHARED_EXPERT

_LOGIT_SCALE = number("logit_scale", "logit_scale", 0.0, {0: 1.0})
_LAST_CAP = number("final_logit_softcapping", "final_logit_softcapping", 0.0, {0: None})
_USE_BIAS = has("use_bias", "attn_q.bias")
_NORMS_HEADS = has("use_qk_norm", "attn_q_norm.weight")
_LOCAL_EXPERTS = experts("num_local_experts", "intermediate_size")
# fmt: off - a row stays together

_LLAMA = Family("Llama", "llama", *ALL_BIASES)
_MIXTRAL = Family("Mixtral", "mixtral", *_LOCAL_EXPERTS, when=mixtures.has_experts, sliding_window=None)
_MINISTRAL = Family(
    "Ministral3",
    "ministral3",
    dense.ministral_rope,
    sliding_window=None,
    when=lambda given: given.has("attention.temperature_scale"),
)
_QWEN2 = Family("Qwen2", "qwen2", use_sliding_window=False)
_QWEN3 = Family("Qwen3", "qwen3", ATTENTION_BIAS, use_sliding_window=False)
_QWEN3_CLASSES = Family(
    "Qwen3",
    "qwen3",
    *_QWEN3.facts,
    numbers.qwen3_classes,
    when=numbers.has_classes,
    purpose="ForSequenceClassification",
    use_sliding_window=False,
)
_QWEN3_MOE = Family("Qwen3Moe", "qwen3_moe", ATTENTION_BIAS, *experts(), dense_layers, norm_topk_prob=True)
_GEMMA3_FACTS = (
    ScoreScale(62),
    gemma.WINDOWS,
    number("rope_theta", "rope.freq_base", 1_000_000.0),
    number("rope_local_base_freq", "rope.freq_base_swa", 10_000.0),
    _LAST_CAP,
)
_GEMMA4 = (
    gemma.gemma4_layers,
    _LAST_CAP,
    Key("head_dim", "attention.key_length_swa"),
    Key("global_head_dim", "attention.key_length"),
    Key("hidden_size_per_layer_input", "embedding_length_per_layer_input", default=0),
)
_GEMMA4_MOE = Family(
    "Gemma4",
    "gemma4_text",
    *_GEMMA4,
    Key("num_experts", "expert_count"),
    Key("top_k_experts", "expert_used_count"),
    Key("moe_intermediate_size", "expert_feed_forward_length"),
    when=mixtures.has_experts,
    enable_moe_block=True,
)
_OLMO3 = Family(
    "Olmo3",
    "olmo3",
    ATTENTION_BIAS,
    Windows(4),
    dense.olmo3_rope,
    when=lambda given: given.count("attention.sliding_window", 0) > 0,
)

_DENSE = (
    Architecture(  # also of InternLM3, which computes as Llama does
        "llama",
        _LLAMA,
        (_MIXTRAL,),
        pairs_rows=True,
        parts=PLAIN | EXPERTS,
        biased=QKV | {"attn_output", "ffn_gate", "ffn_up", "ffn_down"},
        also=("mistral",),
    ),
    Architecture("internlm2", _LLAMA, (_MIXTRAL,), pairs_rows=True),  # its tensors are separate here
    Architecture(  # Ministral 3, or the decoder of Mistral Small 3.1
        "mistral3", Family("Mistral", "mistral", sliding_window=None), (_MINISTRAL,), pairs_rows=True
    ),
    Architecture("qwen2", _QWEN2, parts=PLAIN, biased=QKV, has_head_dim=False),
    Architecture("qwen2vl", _QWEN2),  # the text decoder
    Architecture("qwen3", _QWEN3, (_QWEN3_CLASSES,), parts=PLAIN | HEAD_NORMS),
    Architecture("qwen3vl", _QWEN3),
    Architecture("ernie4_5", Family("Ernie4_5", "ernie4_5", _USE_BIAS), parts=PLAIN, biased=QKV | {"attn_output"}),
    Architecture(
        "phi3",
        Family(
            "Phi3",
            "phi3",
            rotated_part,
            Key("original_max_position_embeddings", CONTEXT, default=original_context),
            Key("sliding_window", "attention.sliding_window", default=0, meaning={0: None}, always=0),
        ),
        parts=PLAIN - QKV - {"ffn_gate"} | {"attn_qkv"},
        has_head_dim=False,
    ),
    Architecture("phi2", Family("Phi", "phi", LAYER_NORM, rotated_part, hidden_act="gelu_new")),
    Architecture(  # llama.cpp has no key for layers without rotation, and assumes every fourth layer
        "smollm3", Family("SmolLM3", "smollm3", *ALL_BIASES, no_rope_layer_interval=4), pairs_rows=True
    ),
    Architecture("exaone4", Family("Exaone4", "exaone4", Windows(4))),
    Architecture(  # the base is stored after stretching
        "hunyuan-dense", Family("HunYuanDenseV1", "hunyuan_v1_dense", ATTENTION_BIAS)
    ),
    Architecture("arcee", Family("Arcee", "arcee", *ALL_BIASES, hidden_act="relu2"), pairs_rows=True),
    Architecture("seed_oss", Family("SeedOss", "seed_oss", *ALL_BIASES, has("attention_out_bias", "attn_output.bias"))),
    Architecture("olmo2", Family("Olmo2", "olmo2", ATTENTION_BIAS), (_OLMO3,)),
    Architecture("chatglm", Family("Glm", "glm", ATTENTION_BIAS, rotated_part)),
    Architecture("glm4", Family("Glm4", "glm4", ATTENTION_BIAS, rotated_part)),
    Architecture(  # also of Granite 4 without Mamba's layers or experts
        "granite",
        Family(
            "Granite",
            "granite",
            *ALL_BIASES,
            dense.granite_scores,
            number("embedding_multiplier", "embedding_scale", 0.0, {0: 1.0}),
            number("residual_multiplier", "residual_scale", 0.0, {0: 1.0}),
            number("logits_scaling", "logit_scale", 0.0, {0: 1.0}),
        ),
        pairs_rows=True,
    ),
    Architecture(
        "minicpm",
        Family("MiniCPM", "minicpm", number("scale_emb", "embedding_scale", 12.0), dense.minicpm_factors),
        pairs_rows=True,
    ),
    Architecture("command-r", Family("Cohere", "cohere", LAYER_NORM, _LOGIT_SCALE, ATTENTION_BIAS, _NORMS_HEADS)),
    Architecture("cohere2", Family("Cohere2", "cohere2", LAYER_NORM, _LOGIT_SCALE, ATTENTION_BIAS, Windows(4))),
    Architecture(
        "stablelm",
        Family(
            "StableLm",
            "stablelm",
            LAYER_NORM,
            has("use_qkv_bias", "attn_q.bias"),
            has("qk_layernorm", "attn_q_norm.weight"),
            rotated_part,
            # Otherwise the MLP has a norm of its own.
            lambda given: {"use_parallel_residual": not given.has_in_any_layer("ffn_norm.weight")},
        ),
    ),
    Architecture(
        "nemotron",
        Family(
            "Nemotron", "nemotron", number("norm_eps", LAYER_NORM.header), *ALL_BIASES, rotated_part, hidden_act="relu2"
        ),
    ),
    Architecture("jais2", Family("Jais2", "jais2", LAYER_NORM, *ALL_BIASES, hidden_act="relu2")),
    Architecture(
        "starcoder2",
        Family(
            "Starcoder2",
            "starcoder2",
            number("norm_epsilon", LAYER_NORM.header),
            _USE_BIAS,
            hidden_act=GELU,
            sliding_window=None,
        ),
    ),
)

_GEMMA = (
    Architecture("gemma", Family("Gemma", "gemma", hidden_act=GELU), parts=PLAIN, ties_head=True),
    Architecture(
        "gemma2",
        Family(
            "Gemma2",
            "gemma2",
            ScoreScale(46),
            Windows(2),
            number("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
            number("final_logit_softcapping", "final_logit_softcapping", 30.0),
            hidden_act=GELU,
            hidden_activation=GELU,
        ),
        parts=PLAIN | NORMS_BEHIND,
        ties_head=True,
    ),
    Architecture(
        "gemma3",
        Family(
            "Gemma3",
            "gemma3_text",
            *_GEMMA3_FACTS,
            hidden_activation=GELU,
            attn_logit_softcapping=None,
        ),
        parts=PLAIN | NORMS_BEHIND | HEAD_NORMS,
    ),
    Architecture("gemma4", Family("Gemma4", "gemma4_text", *_GEMMA4, enable_moe_block=False), (_GEMMA4_MOE,)),
)

_MIXTURES = (
    Architecture(  # llama.cpp doesn't renormalise the chosen experts' weights
        "qwen2moe",
        Family(
            "Qwen2Moe",
            "qwen2_moe",
            has("qkv_bias", "attn_q.bias"),
            *experts(),
            SHARED_WIDTH,
            dense_layers,
            norm_topk_prob=False,
        ),
        parts=PLAIN | EXPERTS | SHARED_EXPERT | {"ffn_gate_inp_shexp"},
        biased=QKV,
        has_head_dim=False,
    ),
    Architecture("qwen3moe", _QWEN3_MOE, parts=PLAIN | HEAD_NORMS | EXPERTS),
    Architecture("qwen3vlmoe", _QWEN3_MOE),
    Architecture(
        "ernie4_5-moe",
        Family(
            "Ernie4_5_Moe",
            "ernie4_5_moe",
            _USE_BIAS,
            Key("moe_num_experts", "expert_count"),
            Key("moe_k", "expert_used_count"),
            Key("moe_intermediate_size", "expert_feed_forward_length"),
            Key(SHARED_WIDTH.config, SHARED_WIDTH.header, is_read=False),
            mixtures.ErnieLayers(),
            Key("moe_num_shared_experts", "expert_shared_count", default=0),
        ),
        parts=PLAIN | EXPERTS | SHARED_EXPERT,
        biased=QKV | {"attn_output", "exp_probs_b"},
    ),
    Architecture(  # its configs name an expert's width like an MLP's
        "olmoe",
        Family("Olmoe", "olmoe", ATTENTION_BIAS, *experts(width="intermediate_size"), norm_topk_prob=False),
    ),
    Architecture(  # also of Solar Open, which is the same without query and key norms
        "glm4moe",
        Family("Glm4Moe", "glm4_moe", require_sigmoid, _NORMS_HEADS, ATTENTION_BIAS, rotated_part, *ROUTED),
    ),
    Architecture("dots1", Family("Dots1", "dots1", require_sigmoid, ATTENTION_BIAS, *ROUTED, sliding_window=None)),
    Architecture(
        "minimax-m2",
        Family(
            "MiniMaxM2",
            "minimax_m2",
            require_sigmoid,
            *_LOCAL_EXPERTS,
            Key("rotary_dim", "rope.dimension_count", default=lambda given: given.count("attention.key_length", 0)),
        ),
    ),
    Architecture(
        "hy_v3",
        Family(
            "HYV3",
            "hy_v3",
            require_sigmoid,
            ATTENTION_BIAS,
            *experts(),
            mixtures.hunyuan_layers,
            number("router_scaling_factor", "expert_weights_scale", 1.0),
        ),
    ),
    Architecture(
        "gpt-oss",
        Family("GptOss", "gpt_oss", *_LOCAL_EXPERTS, mixtures.gpt_oss_rope, ATTENTION_BIAS, Windows(2)),
    ),
    Architecture(
        "deepseek2",
        Family("DeepseekV2", "deepseek_v2", *LATENTS, *ROUTED, mixers.topk_method),
        (
            Family("Youtu", "youtu", *LATENTS, when=lambda given: not any(mixtures.sparse_layers(given))),
            Family("DeepseekV3", "deepseek_v3", *LATENTS, *ROUTED, when=mixers.is_v3),
        ),
    ),
)

_HYBRIDS = (
    Architecture(
        "qwen3next",
        Family("Qwen3Next", "qwen3_next", *DELTA_NETS, *experts(), SHARED_WIDTH, dense_layers, norm_topk_prob=True),
    ),
    Architecture("qwen35", Family("Qwen3_5", "qwen3_5_text", *DELTA_NETS), deals_value_heads=True),
    Architecture(
        "qwen35moe",
        Family("Qwen3_5Moe", "qwen3_5_moe_text", *DELTA_NETS, *experts(), SHARED_WIDTH),
        deals_value_heads=True,
    ),
    Architecture("lfm2", Family("Lfm2", "lfm2", *CONVOLUTIONS, block_auto_adjust_ff_dim=False)),
    Architecture(
        "lfm2moe",
        Family(
            "Lfm2Moe",
            "lfm2_moe",
            require_sigmoid,
            has("use_expert_bias", "exp_probs_b.bias", "exp_probs_b"),
            Key("num_dense_layers", "leading_dense_block_count", mixtures.dense_before_sparse),
            SCALING_FACTOR,
            *experts(),
            *CONVOLUTIONS,
            norm_topk_prob=True,
        ),
    ),
)

_BERT_CLASSES = Family(
    "Bert",
    "bert",
    numbers.bert_tables,
    numbers.bert_classes,
    when=numbers.has_classes,
    purpose="ForSequenceClassification",
)
_MODERNBERT_CLASSES = Family(  # files don't say of which row classes are made; llama.cpp takes the mean
    "ModernBert",
    "modernbert",
    numbers.modernbert_layers,
    numbers.classes,
    when=numbers.has_classes,
    purpose="ForSequenceClassification",
    classifier_pooling="mean",
)
_ENCODERS = (
    # Also XLM-RoBERTa's kind, whose tensors are BERT's here.
    Architecture(
        "bert",
        Family("Bert", "bert", numbers.bert_tables, purpose="Model"),
        (_BERT_CLASSES,),
        behind={"cls": "pooler.dense", "cls.output": "classifier"},
    ),
    Architecture(
        "modern-bert",
        Family("ModernBert", "modernbert", numbers.modernbert_layers, purpose="Model"),
        (_MODERNBERT_CLASSES,),
        behind={"cls": "head.dense", "cls.norm": "head.norm", "cls.output": "classifier"},
    ),
    Architecture(
        "gemma-embedding",
        Family(
            "Gemma3Text",
            "gemma3_text",
            *_GEMMA3_FACTS,
            purpose="Model",
            use_bidirectional_attention=True,
            hidden_activation=GELU,
            attn_logit_softcapping=None,
        ),
        behind={name: name for name in numbers.DENSE},
    ),
)

ARCHITECTURES = {each.name: each for each in (*_DENSE, *_GEMMA, *_MIXTURES, *_HYBRIDS, *_ENCODERS)}
# Architectures that can be written, by published family.
WRITTEN = {
    model_type: each
    for each in ARCHITECTURES.values()
    if each.parts
    for model_type in (each.family.model_type, *(variant.model_type for variant in each.variants), *each.also)
}
