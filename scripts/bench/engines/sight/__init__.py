"""Engines that see, compared by `scripts/benchmark sight`: what each is told, and what is asked.

Engines are those of the folder above with a further command (`look.py`); nothing here imports one before its own
process asks for it.
"""
