"""`penstock convert` to a GGUF file, as llama.cpp's own converter and quantizer would write it.

Begin with `convert.py`; `metadata.py` writes what stands in place of a config, `file_types.py` says which numbers each
tensor gets.
"""
