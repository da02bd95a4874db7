"""The families that run here, by the name that a config gives under `architectures`.

`family.py` defines a row.
"""

import re

from .dense import ERNIE, LLAMA, MISTRAL, QWEN2, QWEN2_VL, QWEN3, QWEN3_VL
from .encoders import ENCODERS
from .experts import (
    DOTS1,
    ERNIE_MOE,
    ERNIE_VL_MOE,
    GLM4_MOE,
    GPT_OSS,
    HY_V3,
    MINIMAX_M2,
    MIXTRAL,
    OLMOE,
    QWEN2_MOE,
    QWEN3_MOE,
    QWEN3_VL_MOE,
    SOLAR_OPEN,
)
from .family import Family
from .gemma import GEMMA, GEMMA2, GEMMA3, GEMMA4, VAULTGEMMA
from .hybrid import LFM2, LFM2_MOE, QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT
from .latent import DEEPSEEK_V2, DEEPSEEK_V3, GLM4_MOE_LITE, YOUTU
from .norms import (
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
from .ropes import ARCEE, EXAONE4, HUNYUAN_DENSE, INTERNLM2, INTERNLM3, MINISTRAL, MINISTRAL3, PHI3, SEED_OSS, SMOLLM3

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen2VLTextModel": QWEN2_VL,
    "Qwen2_5_VLTextModel": QWEN2_VL,
    "Qwen3VLTextModel": QWEN3_VL,
    "Ernie4_5ForCausalLM": ERNIE,
    "Ernie4_5_ForCausalLM": ERNIE,  # the name in Baidu's own code
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
    "Gemma4ForCausalLM": GEMMA4,
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
    "HunYuanDenseV1ForCausalLM": HUNYUAN_DENSE,
    "MixtralForCausalLM": MIXTRAL,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3VLMoeTextModel": QWEN3_VL_MOE,
    "Ernie4_5_MoeForCausalLM": ERNIE_MOE,
    "Ernie4_5_VLMoeTextModel": ERNIE_VL_MOE,
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

# How the name of an architecture ends that has another head than a decoder's, or none.
_OTHER_HEADS = re.compile(
    r"(?:Text)?(?:Bidirectional)?(?:Model|For(?:SequenceClassification|TokenClassification|MaskedLM|PreTraining))$"
)


def family_without_head(architecture: str) -> Family | None:
    """The family of a model that was saved with another head than a decoder's, or without one."""
    name = _OTHER_HEADS.sub("", architecture)
    return FAMILIES.get(f"{name}ForCausalLM") or ENCODERS.get(name)
