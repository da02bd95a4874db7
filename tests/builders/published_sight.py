"""Configs of models that see as they were published, with what their authors' tools wrote into them."""

from typing import Any

SMOLVLM_256M: dict[str, Any] = dict(
    architectures=["Idefics3ForConditionalGeneration"], image_token_id=49190, model_type="idefics3", scale_factor=4,
    tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.46.0", use_cache=True, vocab_size=49280,
    text_config={
        "_flash_attn_2_enabled": True, "_name_or_path": "None", "architectures": ["VLlama3ForCausalLM"],
        "head_dim": 64, "hidden_size": 576, "intermediate_size": 1536, "is_llama_config": True,
        "max_position_embeddings": 8192, "model_type": "llama", "neftune_noise_alpha": 0.0, "num_attention_heads": 9,
        "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2,
        "perceiver_config": {
            "_attn_implementation_autoset": False, "model_type": "vllama3", "attention_dropout": 0.0,
            "hidden_act": "silu", "num_key_value_heads": 1, "qk_layer_norms_perceiver": False, "resampler_depth": 6,
            "resampler_head_dim": 96, "resampler_n_heads": 16, "resampler_n_latents": 64,
        },
        "pixel_shuffle_factor": 4, "qk_layer_norms": False, "rms_norm_eps": 1e-05, "rope_interleaved": False,
        "rope_theta": 100000, "torch_dtype": "bfloat16",
        "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}, "use_resampler": False, "vocab_size": 49280,
    },
    vision_config=dict(
        hidden_size=768, image_size=512, max_image_size={"longest_edge": 512}, model_type="idefics3",
        num_attention_heads=12, patch_size=16, size={"longest_edge": 2048}, tie_word_embeddings=False,
        torch_dtype="bfloat16", use_base_siglip=False,
    ),
)  # fmt: skip
GEMMA_3_4B: dict[str, Any] = dict(
    architectures=["Gemma3ForConditionalGeneration"], boi_token_index=255999, eoi_token_index=256000,
    eos_token_id=[1, 106], image_token_index=262144, initializer_range=0.02, mm_tokens_per_image=256,
    model_type="gemma3", torch_dtype="bfloat16", transformers_version="4.50.0.dev0",
    text_config=dict(
        hidden_size=2560, intermediate_size=10240, model_type="gemma3_text", num_attention_heads=8, head_dim=256,
        num_hidden_layers=34, num_key_value_heads=4, rope_scaling={"factor": 8.0, "rope_type": "linear"},
        sliding_window=1024,
    ),
    vision_config=dict(
        hidden_size=1152, image_size=896, intermediate_size=4304, model_type="siglip_vision_model",
        num_attention_heads=16, num_hidden_layers=27, patch_size=14, vision_use_head=False,
    ),
)  # fmt: skip
ERNIE_VL_28B: dict[str, Any] = dict(
    architectures=["Ernie4_5_VLMoeForConditionalGeneration"], auto_map={"AutoConfig": "x"}, bos_token_id=1,
    eos_token_id=2, hidden_act="silu", hidden_size=2560, intermediate_size=12288, initializer_range=0.00482174,
    max_position_embeddings=131072, model_type="ernie4_5_moe_vl", num_attention_heads=20, num_key_value_heads=4,
    num_hidden_layers=28, pad_token_id=0, rms_norm_eps=1e-05, use_cache=False, vocab_size=103424, rope_theta=500000,
    use_rmsnorm=True, use_bias=False, moe_num_experts=[64, 64], moe_num_shared_experts=2, moe_layer_start_index=[1, 1],
    moe_layer_end_index=[29, 28], moe_layer_interval=1, moe_gate="topk", moe_intermediate_size=[1536, 512], moe_k=6,
    moe_capacity=[128, 128, 128], moe_use_aux_free=True, im_patch_id=100295, mm_vocab_size=0, modality_detach=False,
    compression_ratio=1.0, rope_3d=True, freq_allocation=20, tie_word_embeddings=True, torch_dtype="bfloat16",
    max_text_id=100295, moe_multimodal_dispatch_use_allgather="v2-alltoall-unpad-text", pixel_hidden_size=1280,
    spatial_conv_size=2, temporal_conv_size=2, use_temporal_conv=True, moe_group="dummy", moe_aux_loss_lambda=0.01,
    scale_qk_coeff=1.0, rope_reorder=False, moe_norm_gate_logits=True, moe_all_to_all_dropout=0.0,
    moe_z_loss_lambda=0.0001, moe_group_experts=False, ignored_index=-100, hidden_dropout_prob=0.0,
    use_mem_eff_attn=False, use_flash_attn_with_mask=True, token_balance_loss=False, sinkhorn_2gate=True,
    sinkhorn_temp=0.03, moe_dense_experts_token_type_id=3, moe_gate_act="softmax", num_acc_steps=1,
    vision_config=dict(
        attn_implementation="eager", depth=32, embed_dim=1280, hidden_act="quick_gelu", hidden_size=1280,
        in_channels=3, in_chans=3, mlp_ratio=4, model_type="DFNRope_vision_transformer", num_heads=16, patch_size=14,
        spatial_merge_size=2, spatial_patch_size=14, vit_first_fwd_bsz=128, attn_sep=True, tensor_parallel_degree=1,
        use_recompute=False, vit_num_recompute_layers=10000,
    ),
)  # fmt: skip
# Qwen2-VL's had the text part's keys beside those of pictures.
_QWEN2_TEXT: dict[str, Any] = dict(
    attention_dropout=0.0, hidden_act="silu", hidden_size=1536, intermediate_size=8960, max_position_embeddings=32768,
    max_window_layers=28, model_type="qwen2_vl", num_attention_heads=12, num_hidden_layers=28, num_key_value_heads=2,
    rms_norm_eps=1e-6, rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}, rope_theta=1e6,
    sliding_window=32768, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, use_sliding_window=False,
    vision_start_token_id=151652, vision_end_token_id=151653, vision_token_id=151654, vocab_size=151936,
)  # fmt: skip
_PATCHES = dict(in_chans=3, patch_size=14, spatial_merge_size=2, spatial_patch_size=14, temporal_patch_size=2)
QWEN2_VL: dict[str, Any] = _QWEN2_TEXT | dict(
    architectures=["Qwen2VLForConditionalGeneration"],
    vision_config=dict(depth=32, embed_dim=1280, hidden_size=1536, mlp_ratio=4, num_heads=16, **_PATCHES),
)
QWEN2_5_VL: dict[str, Any] = _QWEN2_TEXT | dict(
    architectures=["Qwen2_5_VLForConditionalGeneration"],
    vision_config=dict(
        depth=32, fullatt_block_indexes=[7, 15, 23, 31], hidden_act="silu", hidden_size=1280, num_heads=16,
        intermediate_size=3420, out_hidden_size=1536, tokens_per_second=2, window_size=112, **_PATCHES,
    ),
)  # fmt: skip
