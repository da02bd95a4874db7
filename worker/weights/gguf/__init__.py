"""Weights of GGUF files: which tensor is what, how layers see it, and how blocks are cut for ranks.

Begin with `checkpoint.py`; `text_views.py` says what the tensors of a decoder are called, `vision_views.py` those of an
encoder.
"""
