"""The data of a step: the table of slots that plans change, the batch made of it, and the result.

Begin with `slots.py`; `../runner.py` runs the steps.
"""
