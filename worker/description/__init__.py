"""Describes a model from its config.json: sizes, heads, norms, mixers and the products of each layer.

Begin with `config.py`. `families/` has a row for each architecture, `parts/` how the parts of a layer
differ, `keys/` the config keys for them. Reads no weights and imports no torch.
"""
