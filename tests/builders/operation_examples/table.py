"""The examples of each operation, by its name: `EXAMPLES[name](seed)` makes tuples of arguments, on the CPU.

An operation may write into what it is given, so a second call makes the same examples anew. Those of a formula are also
its invariant form's.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from builders.operation_examples import attention, experts, latents, products, ranks, rows, sampling, states

from penstock.kernels import reference
from penstock.kernels.registry import OPS

for module in walk_packages(reference.__path__, f"{reference.__name__}."):
    import_module(module.name)

EXAMPLES: dict[str, Callable[[int], Iterator[tuple[Any, ...]]]] = {
    "adjust.penalize_repetition": sampling.repetition_inputs,
    "adjust.penalize_generated": sampling.generated_inputs,
    "adjust.apply_mask": sampling.mask_inputs,
    "attention.write_kv": attention.write_inputs,
    "attention.attention": attention.attention_inputs,
    "choice.choose": sampling.draw_inputs,
    "experts.route": experts.route_inputs,
    "experts.activate": experts.activation_inputs,
    "experts.experts": experts.expert_inputs,
    "experts.add_gated": experts.gated_sum_inputs,
    "latent_attention.store_latents": latents.store_inputs,
    "latent_attention.latent_query": latents.query_inputs,
    "latent_attention.latent_attention": latents.attention_inputs,
    "latent_attention.latent_values": latents.value_inputs,
    "gpu_experts.blocks_by_expert": experts.block_inputs,
    "gpu_experts.experts_gpu": experts.gpu_expert_inputs,
    "products.linear_few_rows": products.few_rows_inputs,
    "products.linear": products.linear_inputs,
    "logprobs.ranked_logprobs": sampling.logprob_inputs,
    "lora.add_lora": products.lora_inputs,
    "order.scan": sampling.logit_inputs,
    "order.most_likely": sampling.most_likely_inputs,
    "paged_attention.attention_paged": attention.paged_inputs,
    "pointwise.rms_norm": rows.norm_inputs,
    "pointwise.rotate_halves": rows.rotate_inputs,
    "pointwise.rotate_pairs": rows.rotate_inputs,
    "pointwise.layer_norm": rows.layer_norm_inputs,
    "pointwise.apply_activation": rows.activation_inputs,
    "pointwise.gate": rows.activation_inputs,
    "pointwise.cap": rows.cap_inputs,
    "pointwise.multiply": rows.pair_inputs,
    "pointwise.gate_heads": rows.gated_head_inputs,
    "pointwise.embedding": rows.embedding_inputs,
    "pointwise.log_softmax": rows.logit_inputs,
    "products.linear_gpu": products.float_inputs,
    "products.linear_wint8": products.int8_inputs,
    "products.linear_wint4": products.int4_inputs,
    "products.linear_blocks": products.block_inputs,
    "products.linear_dequantized": products.integer_inputs,
    "products.linear_float8": products.float8_inputs,
    "products.linear_int8": products.int8_inputs,
    "products.linear_int4": products.int4_inputs,
    "projection_norm.square_sums": rows.square_inputs,
    "projection_norm.norm_projections": rows.projection_inputs,
    "quantized.quantize_rows": products.row_inputs,
    "race.choose_on_device": sampling.race_inputs,
    "ranks.all_reduce": ranks.sum_inputs,
    "ranks.all_gather": ranks.gather_inputs,
    "ranks.broadcast": ranks.token_inputs,
    "states.causal_convolution": states.convolution_inputs,
    "states.delta_net": states.net_inputs,
    "states.gated_norm": states.norm_inputs,
    "step_inputs.step_inputs": rows.step_inputs,
    "paged_attention.store_heads_paged": attention.store_inputs,
    "pointwise.add": rows.sum_inputs,
    "pointwise.add_part_norms": rows.part_norm_inputs,
    "pointwise.gather_rows": rows.gather_inputs,
    "pointwise.put_rows": rows.placed_inputs,
    "pointwise.add_rows": rows.placed_inputs,
    "pointwise.add_rms_norm": rows.add_norm_inputs,
    "pointwise.add_layer_norm": rows.add_layer_norm_inputs,
}
EXAMPLES |= {f"{name}_invariant": EXAMPLES[name] for name in EXAMPLES if f"{name}_invariant" in OPS}
