"""`penstock convert` to a GGUF file like that of llama.cpp's own converter and quantizer.

Begin with `convert.py`; `metadata.py` writes the equivalent of a config, `file_types.py` chooses each tensor's type.
"""
