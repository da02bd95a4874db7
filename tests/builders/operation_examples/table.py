"""The examples of each operation, by its name: `EXAMPLES[name](seed)` makes tuples of arguments, on the CPU.

An operation may write into what it is given, so a second call makes the same examples anew. Those of a formula are also
its invariant form's.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from builders.operation_examples import (
    adjust,
    answers,
    attention_inputs,
    choice,
    experts,
    few_rows,
    latents,
    linear,
    logprobs,
    lora,
    order,
    paged_attention,
    pointwise,
    products,
    projection_norm,
    quantized,
    race,
    ranks,
    states,
    step_inputs,
    store_heads,
    stream,
)

from penstock.kernels import reference
from penstock.kernels.registry import OPS

for module in walk_packages(reference.__path__, f"{reference.__name__}."):
    import_module(module.name)

EXAMPLES: dict[str, Callable[[int], Iterator[tuple[Any, ...]]]] = {
    "adjust.penalize_repetition": adjust.repetition_inputs,
    "adjust.penalize_generated": adjust.generated_inputs,
    "adjust.apply_mask": adjust.mask_inputs,
    "paged_attention.attention_answers": answers.inputs,
    "attention.write_kv": attention_inputs.write_inputs,
    "attention.attention": attention_inputs.attention_inputs,
    "choice.choose": choice.draw_inputs,
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
    "products.linear_few_rows": few_rows.inputs,
    "products.linear": linear.inputs,
    "logprobs.ranked_logprobs": logprobs.inputs,
    "lora.add_lora": lora.inputs,
    "order.scan": order.logit_inputs,
    "order.most_likely": order.most_likely_inputs,
    "paged_attention.attention_paged": paged_attention.inputs,
    "pointwise.rms_norm": pointwise.norm_inputs,
    "pointwise.rotate_halves": pointwise.rotate_inputs,
    "pointwise.rotate_pairs": pointwise.rotate_inputs,
    "pointwise.layer_norm": pointwise.layer_norm_inputs,
    "pointwise.apply_activation": pointwise.activation_inputs,
    "pointwise.gate": pointwise.activation_inputs,
    "pointwise.cap": pointwise.cap_inputs,
    "pointwise.multiply": pointwise.pair_inputs,
    "pointwise.gate_heads": pointwise.gated_head_inputs,
    "pointwise.embedding": pointwise.embedding_inputs,
    "pointwise.log_softmax": pointwise.logit_inputs,
    "products.linear_gpu": products.float_inputs,
    "products.linear_wint8": products.int8_inputs,
    "products.linear_wint4": products.int4_inputs,
    "products.linear_blocks": products.block_inputs,
    "products.linear_dequantized": products.integer_inputs,
    "products.linear_int8": products.int8_inputs,
    "products.linear_int4": products.int4_inputs,
    "projection_norm.square_sums": projection_norm.square_inputs,
    "projection_norm.norm_projections": projection_norm.norm_inputs,
    "quantized.quantize_rows": quantized.row_inputs,
    "race.choose_on_device": race.inputs,
    "ranks.all_reduce": ranks.sum_inputs,
    "ranks.all_gather": ranks.gather_inputs,
    "ranks.broadcast": ranks.token_inputs,
    "ranks.add_norm_of_ranks": ranks.norm_inputs,
    "states.causal_convolution": states.convolution_inputs,
    "states.delta_net": states.net_inputs,
    "states.gated_norm": states.norm_inputs,
    "step_inputs.step_inputs": step_inputs.inputs,
    "paged_attention.store_heads_paged": store_heads.inputs,
    "pointwise.add": stream.sum_inputs,
    "pointwise.add_part_norms": stream.part_norm_inputs,
    "pointwise.gather_rows": stream.gather_inputs,
    "pointwise.put_rows": stream.placed_inputs,
    "pointwise.add_rows": stream.placed_inputs,
    "pointwise.add_rms_norm": stream.norm_inputs,
    "pointwise.add_layer_norm": stream.layer_norm_inputs,
}
EXAMPLES |= {f"{name}_invariant": EXAMPLES[name] for name in EXAMPLES if f"{name}_invariant" in OPS}
