"""Makes `tokenizers` objects from vocabularies in other libraries' files (SentencePiece, tiktoken).

They give the same token ids, without those libraries. Begin with `folder.py`, then `sentencepiece_tokenizer.py`;
`segmenter.py` splits texts into pieces if the `tokenizers` library can't.
"""

SEGMENTER_FILE = "segmenter.model"  # next to a tokenizer.json that needs one
