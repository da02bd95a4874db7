"""A step: from the engine's plan over a batch and a forward pass to sampled tokens and a result.

Begin with `runner.py`; `slots.py` is the table that the plans change.
"""
