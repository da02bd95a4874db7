"""Weights on disk: the names and files of a model's tensors, and how layers read them.

Begin with `weights.py`, which layers read from. `files/` reads the files of a checkpoint, `layouts/` maps its names,
`quantized/` reads GPTQ, AWQ and compressed-tensors, `gguf/` reads GGUF files, `packed/` keeps packed weights on disk.
"""
