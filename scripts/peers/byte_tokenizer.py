"""A tokenizer of bytes for models with random weights: benchmarks hand in ids, and GGUF files need one all the same."""

from pathlib import Path


def write_byte_tokenizer(folder: Path) -> None:
    """Its ids are the first of the model's; a GGUF file fills up the others."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = [*("<pad>", "<s>", "</s>"), *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt"]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, [("Ġ", "t")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(words[:3])
    tokenizer.save(str(folder / "tokenizer.json"))
