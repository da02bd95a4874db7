"""Makes `tokenizers` objects from vocabularies in other libraries' files (SentencePiece, tiktoken).

They give the same token ids, without those libraries. Begin with `folder.py`, then `sentencepiece_tokenizer.py`;
`segmenter.py` splits texts into pieces if the `tokenizers` library can't.
"""

from .folder import has_other_ids, readable, write_tokenizer
from .segmenter import attach_segmenter

__all__ = ["attach_segmenter", "has_other_ids", "readable", "write_tokenizer"]
