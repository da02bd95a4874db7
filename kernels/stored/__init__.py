"""Weights as checkpoints store them: small integers, 8-bit and 4-bit floats with scales, blocks of ggml's types.

Begin with `parts.py`, the union of them, then `quantized.py`. Their values may be views of a file.
"""
