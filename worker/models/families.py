"""The families that run here, by the name that a config gives under `architectures`.

`family.py` says what a row holds.
"""

from .dense_families import ERNIE, LLAMA, MISTRAL, QWEN2, QWEN3
from .expert_families import (
    DOTS1,
    ERNIE_MOE,
    GLM4_MOE,
    GPT_OSS,
    HY_V3,
    MINIMAX_M2,
    MIXTRAL,
    OLMOE,
    QWEN2_MOE,
    QWEN3_MOE,
    SOLAR_OPEN,
)
from .family import Family
from .gemma_families import GEMMA, GEMMA2, GEMMA3, VAULTGEMMA
from .hybrid_families import LFM2, LFM2_MOE, QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT
from .latent_families import DEEPSEEK_V2, DEEPSEEK_V3, GLM4_MOE_LITE, YOUTU
from .norm_families import (
    COHERE,
    COHERE2,
    GLM,
    GLM4,
    GRANITE,
    GRANITE_HYBRID,
    JAIS2,
    MINICPM,
    NEMOTRON,
    OLMO2,
    OLMO3,
    PHI,
    STABLELM,
    STARCODER2,
)
from .rope_families import ARCEE, EXAONE4, INTERNLM2, INTERNLM3, MINISTRAL, MINISTRAL3, PHI3, SEED_OSS, SMOLLM3

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "Ernie4_5ForCausalLM": ERNIE,
    "Ernie4_5_ForCausalLM": ERNIE,  # as Baidu's own code named it
    "SmolLM3ForCausalLM": SMOLLM3,
    "Phi3ForCausalLM": PHI3,
    "InternLM2ForCausalLM": INTERNLM2,
    "Olmo2ForCausalLM": OLMO2,
    "Olmo3ForCausalLM": OLMO3,
    "GlmForCausalLM": GLM,
    "Glm4ForCausalLM": GLM4,
    "GemmaForCausalLM": GEMMA,
    "Gemma2ForCausalLM": GEMMA2,
    "VaultGemmaForCausalLM": VAULTGEMMA,
    "Gemma3ForCausalLM": GEMMA3,
    "GraniteForCausalLM": GRANITE,
    "InternLM3ForCausalLM": INTERNLM3,
    "MinistralForCausalLM": MINISTRAL,
    "Ministral3ForCausalLM": MINISTRAL3,
    "SeedOssForCausalLM": SEED_OSS,
    "Exaone4ForCausalLM": EXAONE4,
    "ArceeForCausalLM": ARCEE,
    "GraniteMoeHybridForCausalLM": GRANITE_HYBRID,
    "MiniCPMForCausalLM": MINICPM,
    "CohereForCausalLM": COHERE,
    "Cohere2ForCausalLM": COHERE2,
    "StableLmForCausalLM": STABLELM,
    "PhiForCausalLM": PHI,
    "NemotronForCausalLM": NEMOTRON,
    "Jais2ForCausalLM": JAIS2,
    "Starcoder2ForCausalLM": STARCODER2,
    "MixtralForCausalLM": MIXTRAL,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Ernie4_5_MoeForCausalLM": ERNIE_MOE,
    "DeepseekV2ForCausalLM": DEEPSEEK_V2,
    "DeepseekV3ForCausalLM": DEEPSEEK_V3,
    "YoutuForCausalLM": YOUTU,
    "GptOssForCausalLM": GPT_OSS,
    "OlmoeForCausalLM": OLMOE,
    "Glm4MoeForCausalLM": GLM4_MOE,
    "Glm4MoeLiteForCausalLM": GLM4_MOE_LITE,
    "Dots1ForCausalLM": DOTS1,
    "SolarOpenForCausalLM": SOLAR_OPEN,
    "MiniMaxM2ForCausalLM": MINIMAX_M2,
    "HYV3ForCausalLM": HY_V3,
    "Qwen3NextForCausalLM": QWEN3_NEXT,
    "Qwen3_5ForCausalLM": QWEN3_5,
    "Qwen3_5MoeForCausalLM": QWEN3_5_MOE,
    "Lfm2ForCausalLM": LFM2,
    "Lfm2MoeForCausalLM": LFM2_MOE,
}
