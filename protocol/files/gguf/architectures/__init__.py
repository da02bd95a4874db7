"""llama.cpp's architectures, one row each: how headers map to published configs, and which tensors its files have.

`table.py` has the rows. They drive reading headers into configs and writing them back, and tell the worker which
tensors a file may have and how their rows are laid out. `encoders.py` has the encoders of vision models.
"""
