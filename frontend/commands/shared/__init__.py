"""Code shared by several subcommands: options made from fields, loading a model, and listing cached models.

Begin with `options.py`; `loading.py` loads a command's model.
"""
