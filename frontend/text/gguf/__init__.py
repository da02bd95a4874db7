"""Makes a tokenizer's files (`tokenizer.json` and its companions) from the metadata of a GGUF file.

Begin with `tokenizer_files.py`. `token_list.py` reads the tokens and their roles; then the vocabulary's kind decides:
`byte_pairs.py` with `word_rules.py` (GPT-2's kind and Gemma 4's), `sentencepiece.py` (Llama's, Gemma's and T5's),
`word_pieces.py` (BERT's).
"""

from .token_list import end_token_ids
from .tokenizer_files import write_tokenizer

__all__ = ["end_token_ids", "write_tokenizer"]
