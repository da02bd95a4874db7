"""People: `LLM`, chat templates, tokenizers, the detokenizer and the command line.

Knows nothing of tensors or scheduling; imports no torch and no other room than `protocol`. Begin with `llm.py`, which
opens a model through `session/`.
"""
