"""Weights on disk: what a model's tensors are called, which file holds them, and how layers pull them.

Begin with `checkpoint.py`; `quantized/` reads GPTQ, AWQ and compressed-tensors, `packed_cache.py` keeps packed weights.
"""
