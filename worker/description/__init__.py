"""Describes a model from its config.json: sizes, heads, norms, mixers and the products of each layer.

Begin with `config.py`. `families/` has a row for each architecture, `parts/` the ways in which the parts of a layer
differ, `keys/` the keys that config files have for them. Reads no weights and imports no torch.
"""
