"""The families that run here, by llama.cpp's names of their architectures (`general.architecture`).

A row reads from the metadata what a config of its family has beside the keys of all families, or in their place.
"""

from . import dense, gemma, hybrid, mixtures
from .common import plain
from .latent import deepseek2
from .metadata import Row

FAMILIES: dict[str, Row] = {
    "llama": dense.llama,
    "internlm2": dense.llama,  # computes as Llama does, and its tensors lie apart here
    "mistral3": dense.mistral3,
    "qwen2": plain("Qwen2ForCausalLM", "qwen2", use_sliding_window=False),
    "qwen2vl": plain("Qwen2ForCausalLM", "qwen2", use_sliding_window=False),  # the decoder, for texts
    "qwen3": dense.qwen3,
    "qwen3vl": dense.qwen3,
    "ernie4_5": dense.ernie4_5,
    "phi3": dense.phi3,
    "phi2": dense.phi2,
    "smollm3": dense.smollm3,
    "exaone4": dense.exaone4,
    "hunyuan-dense": dense.hunyuan_dense,
    "arcee": dense.arcee,
    "seed_oss": dense.seed_oss,
    "olmo2": dense.olmo2,
    "chatglm": dense.glm,
    "glm4": dense.glm4,
    "granite": dense.granite,
    "minicpm": dense.minicpm,
    "command-r": dense.command_r,
    "cohere2": dense.cohere2,
    "stablelm": dense.stablelm,
    "nemotron": dense.nemotron,
    "jais2": dense.jais2,
    "starcoder2": dense.starcoder2,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3": gemma.gemma3,
    "gemma4": gemma.gemma4,
    "qwen2moe": mixtures.qwen2_moe,
    "qwen3moe": mixtures.qwen3_moe,
    "qwen3vlmoe": mixtures.qwen3_moe,
    "ernie4_5-moe": mixtures.ernie4_5_moe,
    "olmoe": mixtures.olmoe,
    "glm4moe": mixtures.glm4_moe,
    "dots1": mixtures.dots1,
    "minimax-m2": mixtures.minimax_m2,
    "hy_v3": mixtures.hy_v3,
    "gpt-oss": mixtures.gpt_oss,
    "deepseek2": deepseek2,
    "qwen3next": hybrid.qwen3_next,
    "qwen35": hybrid.qwen3_5,
    "qwen35moe": hybrid.qwen3_5_moe,
    "lfm2": hybrid.lfm2,
    "lfm2moe": hybrid.lfm2_moe,
}
