"""A step: the engine's plan becomes a batch, the batch logits, the logits tokens, and the tokens a result.

Begin with `runner.py`; `slots.py` is the table that the plans change.
"""
