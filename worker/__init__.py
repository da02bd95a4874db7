"""Tensors: the model, its weights, the KV memory and the sampling of tokens. One process per device.

A worker has no policy: it is a pure function of the message stream that the engine sends. Begin with `__main__.py`,
then `start/` for what happens once and `runner.py` for every step.
"""
