"""What several subcommands share: options made from fields, loading a model, and what this machine has.

Begin with `options.py`; `loading.py` is how a command gets its model.
"""
