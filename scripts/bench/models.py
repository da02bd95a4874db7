"""Models that the benchmarks run: shapes with random weights, and tokenizers that only have to exist."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "8b": {
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False,
    },
    "4b": {
        "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "0.6b": {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "quarter": {  # of 0.6b, for drafts
        "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 18, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "small": {
        "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 4096, "tie_word_embeddings": True,
    },
}  # fmt: skip
STANDARD_DEVIATION = 0.02
LONGEST_CONTEXT = 131_072
LARGE_VOCABULARY = 151_936
_NUM_SPECIAL = 26
_LONGEST = 10


def config_of(shape: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2,
        "attention_bias": False, "dtype": "float32", **shape,
    }  # fmt: skip


def write_config(folder: Path, shape: dict[str, Any]) -> None:
    """A checkpoint's folder without weights: enough for `load_format="dummy"` and `"stand-in"`."""
    (folder / "config.json").write_text(json.dumps(config_of(shape), indent=1))
    write_tokenizer(folder, shape["vocab_size"])


def write_checkpoint(folder: Path, shape_name: str) -> None:
    """A shape in bfloat16 safetensors with random weights, as any engine's converter reads it; once for each folder."""
    if (folder / "model.safetensors").exists():
        return
    import torch
    from safetensors.torch import save_file

    config = {**SHAPES[shape_name], "dtype": "bfloat16", "max_position_embeddings": LONGEST_CONTEXT}
    write_folder(folder, config)
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if name.endswith("norm.weight")
        else (torch.randn(shape, generator=generator) * STANDARD_DEVIATION).to(torch.bfloat16)
        for name, shape in tensor_shapes(config)
    }
    unfinished = folder / "unfinished"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    unfinished.rename(folder / "model.safetensors")


def write_folder(folder: Path, shape: dict[str, Any]) -> None:
    """All of a checkpoint that any engine's converter reads but its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, shape)
    write_byte_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))


def tensor_shapes(config: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Hugging Face's names and shapes of a Qwen3 model's tensors."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    layer = {
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
        "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
        "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    for number in range(config["num_hidden_layers"]):
        for name, shape in layer.items():
            yield f"model.layers.{number}.{name}.weight", shape


# --- tokenizers -------------------------------------------------------------------------------------------------------


def write_tokenizer(folder: Path, size: int) -> None:
    """One word a token: benchmarks hand in ids and count ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(size)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_byte_tokenizer(folder: Path) -> None:
    """One that a GGUF file can hold; its ids are the first of the model's, and the file fills up the others."""
    from tokenizers import pre_tokenizers

    marks = ["<pad>", "<s>", "</s>"]
    _write_bpe(folder, [*marks, *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt"], [("Ġ", "t")], marks)


def write_large_tokenizer(folder: Path, size: int = LARGE_VOCABULARY) -> None:
    """One as large as those of today's models, whose tokens spell something, for grammars; the last ends an answer."""
    names = [f"<|special {number}|>" for number in range(_NUM_SPECIAL)]
    _write_bpe(folder, *_made_up_words(size - _NUM_SPECIAL), names)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": names[-1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _write_bpe(folder: Path, words: list[str], merges: list[tuple[str, str]], special: list[str]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    tokenizer.save(str(folder / "tokenizer.json"))


def _made_up_words(size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Runs of letters, digits, spaces and marks, the same every time, and the merges that make them."""
    from tokenizers import pre_tokenizers

    draw = random.Random(0)
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    known, merges = set(words), []
    # Letters and digits oftener than marks; a space only at a word's beginning.
    parts = [word for word in words if word.isascii() and word.isalnum()] * 3 + ["Ġ"] * 20
    parts += [word for word in words if word.isascii() and not word.isalnum()]
    while len(words) < size:
        left, right = draw.choice(parts), draw.choice(parts)
        joined = left + right
        if len(joined) <= _LONGEST and "Ġ" not in right and joined not in known:
            words.append(joined)
            known.add(joined)
            merges.append((left, right))
            parts.append(joined)
    return words, merges
