"""Requests before they are answered: checks the sender, reads the body, and sets up the prompt and parameters.

Begin with `body.py`, which reads a body within bounds, then `decoding.py` and `parameters.py`.
"""
