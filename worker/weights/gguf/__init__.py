"""Weights of GGUF files: which tensor is what, how layers see it, and how blocks are cut for ranks.

Begin with `checkpoint.py`; `text_views.py` finds the tensors of a decoder, `vision_views.py` those of an encoder.
"""
