"""Reads the headers of GGUF files, llama.cpp's format for models: metadata, and where which tensor lies.

Begin with `header.py`; `architectures/` says what a header means. Of tensors nothing here reads numbers, but for a few
factors of rotation; a header comes from a stranger and is checked throughout.
"""
