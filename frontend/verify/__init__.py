"""Verifying: checks from their receipts that answers are what a model says, for `penstock verify` and `LLM.verify`.

Begin with `judging.py`; `bodies.py` compares what stands in a body with the answer that was drawn again.
"""
