"""Reads the headers of GGUF files, llama.cpp's format for models: metadata, and where which tensor lies.

Begin with `header.py`. Nothing here reads a tensor's numbers; a header comes from a stranger and is checked throughout.
"""
