"""Reads the headers of GGUF files, llama.cpp's format for models: metadata and the offsets of tensors.

Begin with `header.py`; `architectures/` interprets headers. Nothing here reads the numbers of tensors, apart from a few
rotary factors. A header comes from a stranger and is checked throughout.
"""
