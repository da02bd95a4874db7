"""`penstock convert` to a GGUF file, as llama.cpp's own converter and quantizer would write it.

Begin with `convert.py`; `architectures.py` says which families, `file_types.py` which numbers each tensor gets.
"""
