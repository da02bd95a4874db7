"""What happens to a request before it is answered: who may ask, what its body says, and what it asks of the model.

Begin with `body.py`, which reads a body within bounds, then `decoding.py` and `parameters.py`.
"""
