"""What a GGUF file's metadata say of a model, family by family, in the words of published configs.

`table.py` has a row for each of llama.cpp's architectures that runs here; `vision.py` the kinds of encoders.
"""
