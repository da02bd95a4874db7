"""Makes `tokenizers` objects of vocabularies in other libraries' files (SentencePiece, tiktoken), with the same token
ids. None of those libraries is needed for it.
"""

from .folder import has_other_ids, readable, write_tokenizer
from .segmenter import attach_segmenter

__all__ = ["attach_segmenter", "has_other_ids", "readable", "write_tokenizer"]
