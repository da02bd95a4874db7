"""Weights on disk: what a model's tensors are called, which file holds them, and how layers pull them.

Begin with `weights.py`, by which layers read. `files/` reads the files of a checkpoint, `layouts/` maps its names,
`quantized/` reads GPTQ, AWQ and compressed-tensors, `gguf/` reads GGUF files, `packed/` keeps packed weights on disk.
"""
