"""Text and tokens: tokenizers, chat templates, and the detokenizer's process.

Begin with `tokenizer.py` and `chat.py`; `detokenizer.py` is a process of its own, `vocabulary/` reads files that the
tokenizers library can't.
"""
