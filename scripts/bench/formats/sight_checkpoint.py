"""The model that all engines get: Qwen3-VL-2B's shape as published, with random weights.

Its tokenizer is pocket-sight's, filled up to the published vocabulary, because a text must give all engines the same
tokens. Tensors are those of transformers' class. The whole model lies in memory meanwhile, in bfloat16.
"""

import json
from pathlib import Path
from typing import Any

from lab.sight.model import preprocessor_config, published_config, sight_tokenizer
from tokenizers import Tokenizer

TEMPLATE = Path(__file__).resolve().parents[2] / "lab" / "sight" / "chat_template.jinja"
BOUND = 0.035  # of evenly spread weights, whose standard deviation is then 0.02
TEXT: dict[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "rope_theta": 5e6,
    "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [24, 20, 20]},
    "max_position_embeddings": 262_144,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 4096, "depth": 24, "num_heads": 16, "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [5, 11, 17], "patch_size": 16, "out_hidden_size": 2048,
}  # fmt: skip
PIXELS = {"longest_edge": 16_777_216, "shortest_edge": 65_536}


def write_checkpoint(folder: Path) -> None:
    """Does nothing where the folder has it already."""
    if any(folder.glob("*.safetensors")):
        return
    write_all_but_weights(folder)
    _write_weights(folder)


def write_all_but_weights(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = whole_tokenizer()
    config = published_config(tokenizer, TEXT)
    config["vision_config"] |= VISION
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", {"eos_token_id": tokenizer.token_to_id("<|im_end|>")})
    image = preprocessor_config() | {"size": PIXELS, "patch_size": VISION["patch_size"]}
    _write(folder / "preprocessor_config.json", image)
    video = image | {"video_processor_type": "Qwen3VLVideoProcessor"}
    _write(folder / "video_preprocessor_config.json", video)
    _write(folder / "tokenizer_config.json", tokenizer_config())
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")


def whole_tokenizer() -> Tokenizer:
    """Words that no text has fill it up; the marks of pictures come behind them, as they do as published."""
    state = json.loads(sight_tokenizer().to_str())
    words = state["model"]["vocab"]
    marks = sum(token["content"] not in words for token in state["added_tokens"])
    words |= {f"filler{number}": number for number in range(len(words), TEXT["vocab_size"] - marks)}
    return Tokenizer.from_str(json.dumps(state))


def tokenizer_config() -> dict[str, Any]:
    ends = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None}
    marks = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    marks |= {"vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>"}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "processor_class": "Qwen3VLProcessor"}
    return kind | ends | marks | {"extra_special_tokens": marks, "model_max_length": TEXT["max_position_embeddings"]}


def _write_weights(folder: Path) -> None:
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = json.loads((folder / "config.json").read_text())
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**config)).to(torch.bfloat16)
    tensors = {}
    for name, tensor in model.named_parameters():  # a tied one comes once
        if "norm" in name:
            tensors[name] = (torch.zeros if name.endswith("bias") else torch.ones)(tensor.shape, dtype=torch.bfloat16)
        else:
            tensors[name] = torch.empty(tensor.shape, dtype=torch.bfloat16).uniform_(-BOUND, BOUND)
    from safetensors.torch import save_file

    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
