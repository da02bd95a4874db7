"""llama.cpp's architectures, each in one row: what headers and published configs say alike, and what its files hold.

`table.py` has the rows. By them headers are read into configs and written from them, and the worker finds which tensors
a file may have and how their rows lie. `encoders.py` has the encoders of models that see.
"""
