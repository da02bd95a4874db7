"""Makes a tokenizer's files (`tokenizer.json` and those beside it) of the metadata of a GGUF file.

Begin with `tokenizer_files.py`. `token_list.py` reads the tokens and what each is for; the vocabulary's kind decides
what follows: `byte_pairs.py` with `word_rules.py` (GPT-2's kind and Gemma 4's), `sentencepiece.py` (Llama's, Gemma's
and T5's), `word_pieces.py` (BERT's).
"""

from .token_list import end_token_ids
from .tokenizer_files import write_tokenizer

__all__ = ["end_token_ids", "write_tokenizer"]
