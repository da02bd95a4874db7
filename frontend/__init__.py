"""The side that users see: `LLM`, chat templates, tokenizers, the detokenizer and the command line.

It imports no torch, and no other room than `protocol`. Begin with `llm.py`, which opens a model through `session/`.
"""
