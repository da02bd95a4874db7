"""What several subcommands share: options made from fields, loading a model, and the models in the cache.

Begin with `options.py`; `loading.py` is how a command gets its model.
"""
